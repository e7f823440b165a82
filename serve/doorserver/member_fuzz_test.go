package doorserver

import (
	"strings"
	"testing"

	"meridian/member/directory"
)

// Whatever stands in the directory as a part of an engine is refused, or names an
// agent in one life and a registration.
func FuzzMember(f *testing.F) {
	id := strings.Repeat("0a", 16)
	for _, value := range []string{
		"", "null", "{}", "[]",
		`{"agent":"a","incarnation":"` + id + `","registration":"` + id + `","memory":[{"Region":1,"Length":18446744073709551615},{"Length":1}]}`,
		`{"agent":"","incarnation":"` + id + `","registration":"` + id + `"}`,
		`{"agent":"a","incarnation":"` + id + `ab","registration":"` + id + `"}`,
		`{"agent":"a","incarnation":"` + id + `","registration":"1"}`,
	} {
		f.Add([]byte(value), "0")
	}
	f.Add([]byte("{}"), "-1")
	f.Add([]byte("{}"), "+1")
	f.Add([]byte("{}"), "01")
	f.Fuzz(func(t *testing.T, value []byte, number string) {
		if index, isRank := rankNumber(number); isRank && (index < 0 || number[0] == '+' || len(number) > 1 && number[0] == '0') {
			t.Fatalf("%q is rank %d", number, index)
		}
		m, agent, err := parseMember(value)
		if err != nil {
			if m.Agent != "" || agent.Name != "" {
				t.Fatalf("%+v is refused, and there: %v", m, err)
			}
			return
		}
		if agent.Name == "" || len(agent.Name) > 255 || agent.Incarnation.String() != strings.ToLower(m.Incarnation) || len(m.Registration) != 32 || len(value) > directory.MaxValueBytes {
			t.Fatalf("%+v was taken", m)
		}
	})
}
