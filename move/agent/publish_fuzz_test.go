package agent

import (
	"strings"
	"testing"
	"unicode"

	"meridian/kv"
	"meridian/member/directory"
)

// Whatever stands in the directory under an agent's name is refused, or is that
// agent's and bounded.
func FuzzAgentRecord(f *testing.F) {
	id := strings.Repeat("0a", 16)
	for _, value := range []string{
		"", "null", "[]", `{"name":"a"}`,
		`{"name":"a","incarnation":"` + id + `","fabrics":{"tcp":"127.0.0.1:7411"},"regions":"00"}`,
		`{"name":"b","incarnation":"` + id + `"}`,
		`{"name":"a","incarnation":"` + id + `ab"}`,
		`{"name":"a","incarnation":"` + id + `","fabrics":{"tcp":"\u001b[2J"}}`,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := ParseAgentRecord(directory.Record{Key: AgentKey("a"), Value: value})
		if err != nil {
			if len(err.Error()) > 1<<10 {
				t.Fatalf("a refusal of %d bytes", len(err.Error()))
			}
			return
		}
		if _, err := kv.ParseID(r.Incarnation); err != nil || r.Name != "a" || len(r.Fabrics) > maxRecordFabrics {
			t.Fatalf("%+v was taken", r)
		}
		for name, address := range r.Fabrics {
			if len(name+address) > 2*maxRecordText || strings.ContainsFunc(name+address, unicode.IsControl) {
				t.Fatalf("%q at %q was taken", address, name)
			}
		}
	})
}
