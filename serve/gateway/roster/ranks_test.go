package roster

import "testing"

func TestRankName(t *testing.T) {
	for id, want := range map[string]struct {
		of   string
		rank int
		ok   bool
	}{
		"decode_dp0": {"decode", 0, true}, "a_dp1_dp12": {"a_dp1", 12, true}, "_dp3": {"", 3, true},
		"decode": {}, "decode_dp": {}, "decode_dpx": {}, "decode_dp-1": {}, "decode_dp99999999999999999999": {}, "decode_dp65537": {},
	} {
		if of, rank, ok := rankName(id); of != want.of || rank != want.rank || ok != want.ok {
			t.Errorf("%q: %q, %d, %v, want %v", id, of, rank, ok, want)
		}
	}
}
