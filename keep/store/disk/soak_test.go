package disk

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/until"
	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

// A disk that is full, fails, tears what it writes or hangs, in turns and with pauses, while
// objects are put, read and dropped: no get brings other bytes or takes long, and when the disk
// works again it is used again. A second, or MERIDIAN_SOAK_MINUTES.
func TestFaultsInTurns(t *testing.T) {
	seed, length := rand.Uint64(), time.Second
	if minutes, err := strconv.ParseFloat(os.Getenv("MERIDIAN_SOAK_MINUTES"), 64); err == nil {
		length = time.Duration(minutes * float64(time.Minute))
	}
	t.Logf("seed %d", seed)
	objects := make([]tier.Object, 400)
	for n := range objects {
		objects[n] = tiertest.Object(n, 1+n*997%30_000)
	}
	d, f := faultyDisk(t)
	var stop atomic.Bool
	var hits, misses, wrong atomic.Uint64
	var work sync.WaitGroup
	for worker := range uint64(4) {
		work.Go(func() {
			random := rand.New(rand.NewPCG(seed, worker))
			for !stop.Load() {
				o := objects[random.IntN(len(objects))]
				time.Sleep(50 * time.Microsecond)
				switch n := random.IntN(100); {
				case n == 0:
					d.Drop(o.Key)
				case n < 40:
					_ = d.Put(o) // kept or not
				default:
					got, err := tiertest.Get(context.Background(), d, o.Key)
					switch {
					case err != nil:
						misses.Add(1)
					case !bytes.Equal(got.Payload, o.Payload) || !bytes.Equal(got.Header, o.Header):
						wrong.Add(1)
					default:
						hits.Add(1)
					}
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 99))
	mend := func() {
		for _, where := range []*atomic.Pointer[error]{&f.create, &f.read, &f.write} {
			f.fail(where, nil)
		}
		if hang := f.hang.Swap(nil); hang != nil {
			close(*hang)
		}
	}
	faults := 0
	for end := time.Now().Add(length); time.Now().Before(end); faults++ {
		switch random.IntN(4) {
		case 0:
			f.fail(&f.create, unix.ENOSPC)
		case 1:
			f.fail(&f.read, unix.EIO)
		case 2:
			f.fail(&f.write, unix.EIO) // of which a part is there
		case 3:
			hang := make(chan struct{})
			f.hang.Store(&hang)
		}
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		mend()
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		if random.IntN(4) > 0 {
			d.later(6 * time.Second) // else it is left alone most of the time
		}
	}
	stop.Store(true)
	work.Wait()
	t.Logf("%d faults: %d hits, %d misses: %+v", faults, hits.Load(), misses.Load(), d.Stats())
	if wrong.Load() > 0 {
		t.Errorf("wrong bytes, %d times", wrong.Load())
	}
	last := tiertest.Object(1000, 5000)
	until.True(t, "the disk is used again", func() bool {
		d.later(6 * time.Second)
		if err := d.Put(last); err != nil || d.Flush(t.Context()) != nil {
			return false
		}
		got, err := tiertest.Get(t.Context(), d, last.Key)
		return err == nil && bytes.Equal(got.Payload, last.Payload)
	})
	if hits.Load() == 0 {
		t.Error("nothing was ever read")
	}
}
