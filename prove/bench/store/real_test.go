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
	for _, peer := range peersOf(Options{PeersDir: peersDir}, "") {
		t.Run(peer.Name, func(t *testing.T) {
			o := smallRun(t)
			o.PeersDir, o.Peers = peersDir, []string{peer.Name}
			if absence := peer.Absent(); absence != nil {
				require.Skip(t, peer.Name, absence.Why+"; to have it: "+absence.Fix)
			}
			report, err := run(t.Context(), o, newFake().open)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range report.Rows {
				if ratio := row.Ratio[peer.Name]; ratio == nil || *ratio <= 0 {
					t.Errorf("%s %s: ratio %v; absent: %v", row.Op, row.Object, ratio, report.Absent)
				}
			}
		})
	}
}
