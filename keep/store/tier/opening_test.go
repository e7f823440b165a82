package tier_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/keep/store/tier"
)

// plain is a tier that has every key, and counts its ends.
type plain struct {
	tier.Tier
	closed int
}

func (p *plain) Has(keys [][]byte) []bool    { return slices.Repeat([]bool{true}, len(keys)) }
func (p *plain) Put(tier.Object) error       { return nil }
func (p *plain) Takes(uint64) error          { return nil }
func (p *plain) Drop([]byte)                 {}
func (p *plain) Flush(context.Context) error { return nil }
func (p *plain) Stats() tier.Stats           { return tier.Stats{Objects: 7} }
func (p *plain) Close(context.Context) error { p.closed++; return nil }
func (p *plain) Get(context.Context, []byte, func([]byte, int) []byte) ([]byte, error) {
	return []byte("value"), nil
}

// A tier that cannot be opened is a miss at once, is tried again, and is used when it comes.
func TestOpeningComesWhenItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		var tries atomic.Int64
		inner, told := &plain{}, []error{}
		broken := errors.New("read-only file system")
		o := tier.Open("disk", func(err error) { told = append(told, err) }, func(_ context.Context, progress func(read, of int)) (tier.Tier, error) {
			progress(3, 7)
			if tries.Add(1); !works.Load() {
				return nil, broken
			}
			return inner, nil
		})
		synctest.Wait()
		if _, err := o.Get(t.Context(), []byte("k"), nil); !errors.Is(err, tier.ErrMissing) || !errors.Is(err, tier.ErrDown) {
			t.Errorf("get: %v", err)
		}
		if err := o.Put(tier.Object{}); !errors.Is(err, tier.ErrDown) || o.Has([][]byte{nil})[0] || o.Flush(t.Context()) != nil {
			t.Errorf("put: %v", err)
		}
		o.Drop(nil)
		if is, why := o.Opened(); is || !errors.Is(why, broken) {
			t.Errorf("before it is open: %t, %v", is, why)
		}
		if s := o.Stats(); !s.Down || s.Failed != 1 || s.Misses != 1 || s.PutsDropped != 1 {
			t.Errorf("before it is open: %+v", s)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := tries.Load(); n < 10 || n > 30 {
			t.Errorf("%d tries in 10 minutes", n)
		}
		works.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if v, err := o.Get(t.Context(), []byte("k"), nil); err != nil || string(v) != "value" || !o.Has([][]byte{nil})[0] {
			t.Errorf("when it is open: %v", err)
		}
		if is, why := o.Opened(); !is || why != nil {
			t.Errorf("when it is open: %t, %v", is, why)
		}
		if s := o.Stats(); s.Down || s.Objects != 7 || s.Misses != 1 || s.Failed != uint64(tries.Load()-1) {
			t.Errorf("when it is open: %+v", s)
		}
		if n := int(tries.Load()); len(told) != n || !errors.Is(told[0], broken) || told[n-1] != nil {
			t.Errorf("it told %v", told)
		}
		if err := o.Close(t.Context()); err != nil || inner.closed != 1 {
			t.Errorf("closed %d times: %v", inner.closed, err)
		}
	})
}

// One that hangs while it is opened keeps its owner's end waiting no longer than ctx, and is
// closed when it comes after all.
func TestOpeningHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, inner := make(chan struct{}), &plain{}
		o := tier.Open("disk", func(error) { t.Error("it is open") }, func(_ context.Context, progress func(read, of int)) (tier.Tier, error) {
			progress(3, 7)
			<-hang
			return inner, nil
		})
		synctest.Wait()
		if s := o.Stats(); !s.Down {
			t.Errorf("while it hangs: %+v", s)
		}
		if read, of := o.Progress(); read != 3 || of != 7 {
			t.Errorf("while it hangs %d of %d parts are read", read, of)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		close(hang)
		synctest.Wait()
		if inner.closed != 1 {
			t.Errorf("what came too late is closed %d times", inner.closed)
		}
	})
}
