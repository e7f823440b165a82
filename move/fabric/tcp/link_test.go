package tcp

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"meridian/internal/until"
	"meridian/move/fabric"
)

// A caller that waited for a transfer may post the next one before the link has heard
// that its connection is lost.
func TestPostRightAfterALoss(t *testing.T) {
	p := newPair(t, 32<<20, Options{})
	prepared, err := p.link.Prepare(fabric.Read, scattered(8<<20, 4096, 1), scattered(8<<20, 4096, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Release()
	for round := range 100 {
		running, err := p.link.Post(t.Context(), prepared, fabric.PostOptions{ID: newID()})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c, err := p.link.(*peerLink).Connected(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var cutting sync.WaitGroup
		cutting.Go(func() { c.Posting().Lost(errors.New("cut")) })
		err = running.Await(t.Context())
		cutting.Wait() // the cut may come too late, and is not to hit the next
		if err != nil && !errors.Is(err, fabric.ErrPeerGone) {
			t.Fatalf("round %d: %v", round, err)
		}
		until.True(t, "links that were lost are gone", func() bool { // a peer has room for few at a time
			_, services := p.b.connections()
			return len(services) <= 2
		})
	}
}

// Frames of every size come whole, one after the other, whether the link keeps room
// for them or not.
func TestLargeFrames(t *testing.T) {
	p := newPair(t, 1<<20, Options{Streams: 2})
	for i, size := range []int{100 << 10, 300 << 10, 1 << 20, keptRoom, 10, 100 << 10} {
		payload := bytes.Repeat([]byte{byte(i + 1)}, size)
		if err := p.link.Notify(t.Context(), newID(), payload); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if got := (<-p.events.notes).Payload; !bytes.Equal(got, payload) {
			t.Errorf("%d bytes: %d came, or others", size, len(got))
		}
	}
}
