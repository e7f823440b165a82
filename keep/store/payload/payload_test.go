package payload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/mrdn"
)

// shelf is a cache in a map. It refuses the first keys.
type shelf struct {
	mu    sync.Mutex
	kept  map[string][]byte
	taken int
}

func (s *shelf) Put(_ context.Context, key string, value []byte, _ store.PutOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken > 0 {
		s.taken--
		return store.ErrExists
	}
	s.kept[key] = value
	return nil
}

func (s *shelf) GetBytes(_ context.Context, key string, _ store.GetOptions) ([]byte, error) {
	value, is := s.kept[key]
	if !is {
		return nil, store.ErrMissing
	}
	return value, nil
}

func (s *shelf) Remove(_ context.Context, key string, _ store.RemoveOptions) error {
	delete(s.kept, key)
	return nil
}

func TestPushPull(t *testing.T) {
	on := &shelf{kept: make(map[string][]byte), taken: 2}
	f, err := Open(on, Options{Enabled: true, Fabric: Label})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("the KV of one block")
	h, err := f.Push(t.Context(), kv.ThinkActive, body)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseHandle(h.String()); err != nil || again != h {
		t.Errorf("%v is read as %v: %v", h, again, err)
	}
	got, err := f.Pull(t.Context(), h)
	if err != nil || got.Tier != kv.ThinkActive || !bytes.Equal(got.Body, body) {
		t.Fatalf("pulled %+v: %v", got, err)
	}
	kept := on.kept[h.key()]
	for name, change := range map[string]func() []byte{
		"a bit":  func() []byte { b := bytes.Clone(kept); b[len(b)-1] ^= 1; return b },
		"longer": func() []byte { return append(bytes.Clone(kept), 0) },
		"cut":    func() []byte { return kept[:len(kept)-1] },
	} {
		on.kept[h.key()] = change()
		if _, err := f.Pull(t.Context(), h); err == nil {
			t.Errorf("%s: it was pulled all the same", name)
		}
	}
	if err := f.Drop(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pull(t.Context(), h); !errors.Is(err, store.ErrMissing) {
		t.Errorf("dropped, and pulled: %v", err)
	}
	on.taken = drawn
	if _, err := f.Push(t.Context(), kv.ThinkActive, body); !errors.Is(err, store.ErrExists) {
		t.Errorf("no handle was free: %v", err)
	}
	if _, err := f.Push(t.Context(), kv.Tier(9), body); !errors.Is(err, mrdn.ErrTier) {
		t.Errorf("a tier that is none: %v", err)
	}
}

func TestBatches(t *testing.T) {
	on := &shelf{kept: make(map[string][]byte)}
	f, err := Open(on, Options{Enabled: true, Fabric: Label, BatchBlocks: 3})
	if err != nil {
		t.Fatal(err)
	}
	for tier, want := range map[kv.Tier][]int{kv.ThinkComplete: {0, 0, 3, 0, 1}, kv.OutputCritical: {1, 1, 1, 1, 0}} {
		var handles []Handle
		b := f.Batch(tier)
		for i, n := range want {
			var some []Handle
			if i < len(want)-1 {
				some, err = b.Add(t.Context(), fmt.Append(nil, i))
			} else {
				some, err = b.Flush(t.Context())
			}
			if handles = append(handles, some...); err != nil || len(some) != n {
				t.Errorf("%v: step %d pushed %d payloads, not %d: %v", tier, i, len(some), n, err)
			}
		}
		for i, h := range handles {
			if frame, err := f.Pull(t.Context(), h); err != nil || string(frame.Body) != fmt.Sprint(i) || frame.Tier != tier {
				t.Errorf("%v: payload %d was pulled as %+v: %v", tier, i, frame, err)
			}
		}
	}
	b := f.Batch(kv.ThinkComplete)
	if b.Add(t.Context(), make([]byte, maxBatchBytes-1)); len(b.waiting) != 1 {
		t.Error("less than a batch was pushed")
	}
	on.taken = 2 * drawn
	if handles, err := b.Add(t.Context(), []byte("x")); !errors.Is(err, store.ErrExists) || len(handles) != 2 || handles[0] != 0 || handles[1] != 0 {
		t.Errorf("a batch of many bytes, and no handle free: %v, %v", handles, err)
	}
}

func TestRefusals(t *testing.T) {
	for want, o := range map[error]Options{ErrDisabled: {Fabric: Label}, ErrNoFabric: {Enabled: true, Fabric: "none"}} {
		if _, err := Open(&shelf{}, o); !errors.Is(err, want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, text := range []string{"", "0", "000000000000000G", "0000000000000000f", "+00000000000000f", "000000000000000F"} {
		if _, err := ParseHandle(text); !errors.Is(err, ErrHandle) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
