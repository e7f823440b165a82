package licence

import (
	"errors"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		ids  []string
		use  Use
		want error
	}{
		{[]string{"MIT"}, Shipped, nil},
		{[]string{"Apache-2.0", "BSD-3-Clause"}, Shipped, nil},
		{[]string{"MPL-2.0"}, TestOnly, nil},
		{[]string{"MPL-2.0"}, Shipped, ErrRefused},
		{[]string{"MIT", "GPL-3.0"}, Shipped, ErrRefused},
		{[]string{"GPL-3.0"}, TestOnly, ErrRefused},
		{nil, Shipped, ErrUnknown},
		{nil, TestOnly, ErrUnknown},
	} {
		if err := Judge(c.ids, c.use); !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("Judge(%v, %v) = %v, want %v", c.ids, c.use, err, c.want)
		}
	}
}

func TestEveryAllowanceHasItsReason(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Allowed {
		if a.Why == "" || seen[a.ID] {
			t.Errorf("%s: without a reason, or listed twice", a.ID)
		}
		seen[a.ID] = true
	}
}
