package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"meridian/kv"
	"meridian/move/fabric"
)

// Every protection has a row of its own, verified, and the column is there only
// when it tells something.
func TestProtectedRows(t *testing.T) {
	for name, protect := range map[string][]string{"tcp": Protections(), "host": {"none", "grants"}} {
		t.Run(name, func(t *testing.T) {
			o := smallRun(t)
			o.Fabrics, o.Protect, o.Ops, o.Dir = []string{name}, protect, []string{"read", "write"}, t.TempDir()
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			var text, table bytes.Buffer
			if err := errors.Join(report.WriteJSON(&text), report.WriteText(&table)); err != nil {
				t.Fatal(err)
			}
			var file struct {
				Rows []struct{ Op, Protect string }
			}
			if err := json.Unmarshal(text.Bytes(), &file); err != nil {
				t.Fatal(err)
			}
			if len(file.Rows) != 2*len(protect) {
				t.Fatalf("%d rows: %+v", len(file.Rows), file.Rows)
			}
			for i, row := range file.Rows {
				if row.Protect != protect[i%len(protect)] || row.Op != o.Ops[i/len(protect)] {
					t.Errorf("row %d: %+v", i, row)
				}
			}
			if !strings.Contains(table.String(), "SUMS  PROTECT  MERIDIAN") {
				t.Errorf("no column:\n%s", table.String())
			}
		})
	}
}

func TestNoColumnWithoutProtection(t *testing.T) {
	report, err := Run(t.Context(), smallRun(t))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := report.WriteText(&table); err != nil || strings.Contains(table.String(), "PROTECT") {
		t.Errorf("%v:\n%s", err, table.String())
	}
}

func TestProtectedLatency(t *testing.T) {
	o := smallRun(t)
	o.Latency, o.Rounds, o.Protect = true, 1, []string{"none", "tls"}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Latency) != 8 || report.Latency[0].Protect != "none" || report.Latency[4].Protect != "tls" || report.Latency[4].Who != "meridian" {
		t.Errorf("%+v", report.Latency)
	}
}

// The guard is no decoration: without the grant, with a list that it does not
// open, or without a certificate, nothing moves.
func TestProtectionProtects(t *testing.T) {
	for _, v := range []variant{{"on", withGrants}, {"on", withTLS}} {
		t.Run(v.protect, func(t *testing.T) {
			o := smallRun(t)
			o.Streams = 2
			m, err := openOurs(t.Context(), o, fabricByName("tcp"), v)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			row := Case{Op: "write", Block: 4096, Total: 1 << 20, Layout: Scattered}
			if err := m.load(t.Context(), row); err != nil {
				t.Fatal(err)
			}
			if _, err := m.round(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			checkWiderListIsRefused(t, m, row)
			m.grant = kv.ID{}
			if _, err := m.round(t.Context(), false); !errors.Is(err, fabric.ErrNoGrant) {
				t.Errorf("without a grant: %v", err)
			}
			checkStranger(t, m)
		})
	}
}

// The blocks of a dense row lie in the gaps of a scattered one.
func checkWiderListIsRefused(t *testing.T, m *ours, granted Case) {
	t.Helper()
	dense := granted
	dense.Layout = Dense
	local, err := dense.list(posting)
	if err != nil {
		t.Fatal(err)
	}
	local[0].Region = m.near.self.Region
	remote, err := dense.list(serving)
	if err != nil {
		t.Fatal(err)
	}
	remote[0].Region = m.farPool
	m.release()
	if err := m.prepare(local, remote); err != nil {
		t.Fatal(err)
	}
	if _, err := m.round(t.Context(), false); !errors.Is(err, fabric.ErrGrantSpans) {
		t.Errorf("blocks that were not granted: %v", err)
	}
}

// checkStranger: who has no certificate does not get in where TLS is.
func checkStranger(t *testing.T, m *ours) {
	t.Helper()
	stranger, err := openEndpoint(t.Context(), posting, setup{
		Fabric: "tcp", Streams: 1, Checksums: true, Protect: noProtection, PoolBytes: 4096, Dir: m.dir,
	}, openTCP)
	if err != nil {
		t.Fatal(err)
	}
	_, err = stranger.fabric.Connect(t.Context(), m.link.Peer())
	if (err != nil) != (m.protect == withTLS) {
		t.Errorf("with %s a stranger gets %v", m.protect, err)
	}
	if err := stranger.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
