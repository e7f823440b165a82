//go:build real

package transfer

import (
	"strings"
	"testing"

	"meridian/internal/require"
	"meridian/prove/bench"
)

// peersDir is where `make peers` installs, seen from here.
const peersDir = "../../../.peers"

// TestRealPeers measures beside each real peer; what it moved was verified, or
// it would have been left out.
func TestRealPeers(t *testing.T) {
	for _, peer := range peersOf(Options{PeersDir: peersDir}, fabricKind{}) {
		t.Run(peer.Name, func(t *testing.T) {
			o := smallRun(t)
			o.PeersDir, o.Peers = peersDir, []string{peer.Name}
			o.Ops, o.Layouts = []string{"read", "write"}, []Layout{Scattered, Dense}
			if absence := peer.Absent(); absence != nil {
				require.Skip(t, peer.Name, absence.Why+"; to have it: "+absence.Fix)
			}
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range report.Rows {
				if ratio := row.Ratio[peer.Name]; ratio == nil || *ratio <= 0 {
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
