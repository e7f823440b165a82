package node

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/serve/door"
	"meridian/serve/producer"
)

func produced(i, size int) (key, value []byte) {
	return fmt.Appendf(nil, "object %d", i), bytes.Repeat(fmt.Appendf(nil, "value %d.", i), size/8+1)[:size]
}

// Objects that a producer puts without asking are found by all, and by no other tenant.
func TestProducerAsksNoOwner(t *testing.T) {
	_, s := openCache(t, true)
	p := producer.Open(s, "t")
	defer p.Close()
	sizes := []int{1, 4 << 10, 100 << 10, 1 << 20}
	for i, size := range sizes {
		key, value := produced(i, size)
		if err := p.Put(t.Context(), key, value, door.Wish{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.Stats(); got.Taken != uint64(len(sizes)) || got.Asked != 0 {
		t.Fatalf("%+v", got)
	}
	for i, size := range sizes {
		key, value := produced(i, size)
		if _, err := s.Locate(t.Context(), key, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
			t.Errorf("%d bytes of %d, %v", len(got), size, err)
		}
	}
}

// What only an owner can promise it is asked for; and where nothing may be mapped, everything.
func TestProducerAsks(t *testing.T) {
	own := uint32(0)
	for name, c := range map[string]struct {
		mapped bool
		wish   door.Wish
	}{
		"for a pin": {true, door.Wish{Pinned: true}}, "for a priority": {true, door.Wish{Priority: 1}},
		"for an owner": {true, door.Wish{Owner: &own}}, "where nothing may be mapped": {false, door.Wish{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := openCache(t, c.mapped)
			p := producer.Open(s, "t")
			defer p.Close()
			key, value := produced(1, 5000)
			if err := p.Put(t.Context(), key, value, c.wish); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Get(t.Context(), key); err != nil || !bytes.Equal(got, value) || p.Stats() != (producer.Stats{Asked: 1}) {
				t.Errorf("%d bytes, %v, %+v", len(got), err, p.Stats())
			}
		})
	}
}

// An arena that is filled several times over takes every put: with room that can be
// taken, and by its owner where there is none. It offers room again when some is free.
func TestProducerOfAFullArena(t *testing.T) {
	_, s := openCache(t, true)
	p := producer.Open(s, "t")
	defer p.Close()
	const size = 256 << 10
	const total = 3 * (32 << 20) / size
	for i := range total {
		key, value := produced(i, size)
		if err := p.Put(t.Context(), key, value, door.Wish{}); err != nil {
			t.Fatal(err)
		}
	}
	got := p.Stats()
	if got.Taken == 0 || got.Asked == 0 || got.Taken+got.Asked != uint64(total) {
		t.Fatalf("%+v of %d", got, total)
	}
	if _, err := s.Evict(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	i := total
	until.True(t, "room that is free is offered", func() bool {
		key, value := produced(i, 4<<10)
		i++
		if err := p.Put(t.Context(), key, value, door.Wish{}); err != nil {
			t.Fatal(err)
		}
		return p.Stats().Taken > got.Taken
	})
}

// A put whose agent has gone is no put.
func TestProducerWithoutItsAgent(t *testing.T) {
	_, s := openCache(t, true)
	p := producer.Open(s, "t")
	defer p.Close()
	key, value := produced(1, 5000)
	if err := p.Put(t.Context(), key, value, door.Wish{}); err != nil || p.Stats().Taken != 1 {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Put(t.Context(), []byte("other"), value, door.Wish{}); err == nil || p.Stats().Taken != 1 {
		t.Errorf("it was put: %+v", p.Stats())
	}
}
