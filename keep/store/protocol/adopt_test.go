package protocol

import (
	"encoding/binary"
	"testing"

	"meridian/keep/store/arena"
)

// An object that a producer wrote without sums is summed outside of the machine, like
// any other, and found after that.
func TestAdoptedWithoutSums(t *testing.T) {
	memory := make([]byte, 1<<20)
	s, objects := leasedServerIn(t, ServerOptions{}, memory)
	heap, err := arena.Open(memory)
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("\x00k")
	r, err := heap.Reserve(arena.HashKey(key), 100, len(key), arena.PageSize)
	if err != nil || !heap.Write(&r, key, make([]byte, 100)) {
		t.Fatal("not written", err)
	}
	binary.LittleEndian.PutUint32(memory[heap.HeaderOffset(r.Index)+48:], arena.Unchecked)
	seal := only[Seal](t, claimed(t, s, 0, s.Scan(0)))
	if seal.Plan.Bytes != 100 || seal.Data != nil || objects.Has(key) {
		t.Fatalf("%+v; found: %v", seal, objects.Has(key))
	}
	if effects := s.Sealed(0, seal.Write, heap.SumPayload(seal.Plan.Offset, 100)); len(effects) != 0 || !objects.Has(key) {
		t.Errorf("%+v; found: %v", effects, objects.Has(key))
	}
	if len(s.writes) != 0 || len(s.shares) != 0 {
		t.Errorf("%d writes, %d shares are left", len(s.writes), len(s.shares))
	}
}
