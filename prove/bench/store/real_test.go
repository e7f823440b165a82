//go:build real

package store

import (
	"testing"

	"meridian/internal/require"
)

// peersDir is where `make peers` installs, seen from here.
const peersDir = "../../../.peers"

// TestRealPeers measures beside each real peer; what it gave back was compared,
// or it would have been left out.
func TestRealPeers(t *testing.T) {
	for _, kind := range peers {
		t.Run(kind.name, func(t *testing.T) {
			o := smallRun(t)
			o.PeersDir, o.Peers = peersDir, []string{kind.name}
			if absence := kind.missing(o); absence != nil {
				require.Skip(t, kind.name, absence.Why+"; to have it: "+absence.Fix)
			}
			report, err := run(t.Context(), o, newFake().open)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range report.Rows {
				if ratio := row.Ratio[kind.name]; ratio == nil || *ratio <= 0 {
					t.Errorf("%s %s: ratio %v; absent: %v", row.Op, row.Object, ratio, report.Absent)
				}
			}
		})
	}
}
