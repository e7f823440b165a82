package disk

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"meridian/keep/store/tier/tiertest"
)

// together are files of which none is opened before so many were asked for.
type together struct {
	real
	asked atomic.Int64
	all   chan struct{} // closed then
}

const atATime = 4

func (f *together) Open(path string) (file, int64, time.Time, error) {
	if f.asked.Add(1) == atATime {
		close(f.all)
	}
	<-f.all
	return f.real.Open(path)
}

// Segments are read together when a folder is opened, and what is told of it comes to the end.
func TestSegmentsAreReadTogether(t *testing.T) {
	o := Options{Dir: t.TempDir(), Bytes: 64 << 20, SegmentBytes: 64 << 10, MaxReads: atATime}
	d := open(t, o)
	for n := range 8 { // each is a segment
		if err := d.Put(tiertest.Object(n, 60_000)); err != nil {
			t.Fatal(err)
		}
		if err := d.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	segments := len(d.segments)
	if err := d.Close(t.Context()); err != nil || segments != 8 {
		t.Fatalf("%d segments, %v", segments, err)
	}
	var told []int
	o.files = &together{all: make(chan struct{})}
	o.Progress = func(read, of int) {
		if told = append(told, read); of != 8 {
			t.Errorf("of %d segments", of)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := again.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if !slices.Equal(told, []int{0, 1, 2, 3, 4, 5, 6, 7}) || again.Stats().Objects != 8 {
		t.Errorf("told %v of %d objects", told, again.Stats().Objects)
	}
}
