//go:build real

package transfer

import (
	"strings"
	"testing"

	"meridian/internal/require"
)

// peersDir is where `make peers` installs, seen from here.
const peersDir = "../../../.peers"

// TestRealPeers measures beside each real peer; what it moved was verified, or
// it would have been left out.
func TestRealPeers(t *testing.T) {
	for _, kind := range peers {
		t.Run(kind.name, func(t *testing.T) {
			o := smallRun(t)
			o.PeersDir, o.Peers = peersDir, []string{kind.name}
			o.Ops, o.Layouts = []string{"read", "write"}, []Layout{Scattered, Dense}
			if absence := kind.missing(o); absence != nil {
				require.Skip(t, kind.name, absence.Why+"; to have it: "+absence.Fix)
			}
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range report.Rows {
				if ratio := row.Ratio[kind.name]; ratio == nil || *ratio <= 0 {
					t.Errorf("%s %s: ratio %v; absent: %v", row.Op, row.Layout, ratio, report.Absent)
				}
			}
		})
	}
}

// TestRealDefaultTransport measures NIXL as UCX likes it, where no network is
// between the two.
func TestRealDefaultTransport(t *testing.T) {
	o := smallRun(t)
	o.Fabrics, o.PeersDir, o.Peers, o.Ops = []string{"host"}, peersDir, []string{"nixl"}, []string{"read", "write"}
	if absence := bench.WithoutPython(o.PeersDir, "nixl"); absence != nil {
		require.Skip(t, "nixl", absence.Why+"; to have it: "+absence.Fix)
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Rows {
		if row.Ratio["nixl"] == nil {
			t.Errorf("%s: absent: %v", row.Op, report.Absent)
		}
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "(UCX default)") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestRealLatency(t *testing.T) {
	o := smallRun(t)
	o.PeersDir, o.Peers, o.Latency, o.Rounds = peersDir, []string{"nixl"}, true, 1
	if absence := bench.WithoutPython(o.PeersDir, "nixl"); absence != nil {
		require.Skip(t, "nixl", absence.Why+"; to have it: "+absence.Fix)
	}
	report, err := Run(t.Context(), o)
	if err != nil || len(report.Latency) != 6 {
		t.Fatalf("%v: %+v", err, report)
	}
}
