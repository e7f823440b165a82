package ledger

import (
	"math"
	"testing"
)

func TestLogKeepsTheLast(t *testing.T) {
	const most = 1024
	l, err := OpenLog[int](most, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range most + 10 {
		if gone := l.Keep(&n); (gone != nil) != (n >= most) || gone != nil && *gone != n-most {
			t.Fatalf("record %d takes the place of %v", n, gone)
		}
	}
	kept, first, end := l.Since(3, math.MaxInt32)
	if len(kept) != most || first != 10 || end != most+10 || *kept[0] != 10 || *kept[len(kept)-1] != most+9 {
		t.Errorf("%d kept, from %d to %d", len(kept), first, end)
	}
	if kept, first, end = l.Since(end-1, math.MaxInt32); len(kept) != 1 || first != end-1 {
		t.Errorf("%d kept, from %d", len(kept), first)
	}
	if kept, first, _ = l.Since(1<<50, math.MaxInt32); len(kept) != 0 || first != end {
		t.Errorf("%d kept, from %d", len(kept), first)
	}
	if latest := l.Latest(2); len(latest) != 2 || *latest[0] != most+9 || *latest[1] != most+8 {
		t.Errorf("the latest are %v", latest)
	}
}
