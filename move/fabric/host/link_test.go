package host

import (
	"context"
	"errors"
	"sync"
	"testing"

	"meridian/internal/until"
	"meridian/move/fabric"
)

// A caller that waited for a transfer may post the next one before the link has heard
// that its connection is lost.
func TestPostRightAfterALoss(t *testing.T) {
	const size = 4 << 20
	near, far := newAgent(t, "near", size, Options{}), newAgent(t, "far", size, Options{})
	posting := near.connect(t, far.peer())
	prepared, err := posting.Prepare(fabric.Write, dense(size, 7), dense(size, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Release()
	for round := range 100 {
		running, err := posting.Post(context.Background(), prepared, fabric.PostOptions{ID: newID()})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c, err := posting.(*peerLink).Connected(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var cutting sync.WaitGroup
		cutting.Go(func() { c.Posting().Lost(errors.New("cut")) })
		err = running.Await(soon(t))
		cutting.Wait() // the cut may come too late, and is not to hit the next
		if err != nil && !errors.Is(err, fabric.ErrPeerGone) {
			t.Fatalf("round %d: %v", round, err)
		}
		until.True(t, "links that were lost are gone", func() bool { return len(far.everyStream()) <= 2 }) // a peer has room for few at a time
	}
}
