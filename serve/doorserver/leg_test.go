package doorserver

import (
	"encoding/binary"
	"testing"
)

// However many legs are used, the memory of them stays as large as it is, and the
// latest are in it.
func TestSpentLegsAreBounded(t *testing.T) {
	var spent spentLegs
	use := func(i int) (u legUse) {
		binary.LittleEndian.PutUint32(u.transfer[:], uint32(i))
		return u
	}
	const most = maxSpentLegs + 1000
	for i := range most {
		spent.add(use(i))
		spent.add(use(i)) // once more changes nothing
	}
	if len(spent.uses) != maxSpentLegs || len(spent.ring) != maxSpentLegs {
		t.Errorf("%d and %d are remembered, at most %d", len(spent.uses), len(spent.ring), maxSpentLegs)
	}
	if spent.has(use(999)) || !spent.has(use(1000)) || !spent.has(use(most-1)) {
		t.Error("not the latest are remembered")
	}
}
