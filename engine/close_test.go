package engine

import (
	"context"
	"testing"
	"time"

	"meridian/serve/door"
)

// slowDoor notes how long it may take to let go of the memory.
type slowDoor struct {
	doorClient
	until time.Time
}

func (d *slowDoor) Cache() (terms door.CacheTerms, has bool) { return terms, false }

func (d *slowDoor) Serving() bool { return true }

func (d *slowDoor) Close(ctx context.Context) error {
	d.until, _ = ctx.Deadline()
	return nil
}

// All of Close fits its deadline: an answer that does not end leaves time for
// the door.
func TestCloseHasOneDeadline(t *testing.T) {
	e, err := prepare(Options{ID: "test", Model: "tiny", Blocks: 128})
	if err != nil {
		t.Fatal(err)
	}
	if e.runner, err = e.openMemory(); err != nil {
		t.Fatal(err)
	}
	d := new(slowDoor)
	e.door = d
	e.start()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	// The answer is not read, so that the request pauses and never ends.
	if _, err := e.Submit(t.Context(), Request{Prompts: [][]uint32{prompt(1, 4)}, MaxTokens: 1500, IgnoreEOS: true}); err != nil {
		t.Fatal(err)
	}
	deadline, _ := ctx.Deadline()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	if over := d.until.Sub(deadline); d.until.IsZero() || over > time.Second { // less than closeGrace
		t.Errorf("the door may take %v longer than all of it", over)
	}
}
