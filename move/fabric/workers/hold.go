package workers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// Hold keeps every worker waiting, so that what is posted is admitted and does
// not run, until resume is called or the pool is closed. Tests of a fabric
// stall it that way.
func (c *Pool) Hold(ctx context.Context) (resume func(), err error) {
	nothing, err := fabric.NewPrepared(&fabric.Regions{}, fabric.Write, nil, nil)
	if err != nil {
		return nil, err
	}
	resumed := make(chan struct{})
	var busy sync.WaitGroup
	wait := func(t *Task) (fabric.State, error) {
		busy.Done()
		for t.Stopped() == nil {
			select {
			case <-resumed:
				return fabric.Done, nil
			case <-time.After(time.Millisecond):
			}
		}
		return fabric.NotSubmitted, t.Stopped()
	}
	resume = sync.OnceFunc(func() { close(resumed) })
	busy.Add(c.size)
	for i := range c.size {
		job := Job{Group: resumed, ID: kv.ID{byte(i), byte(i >> 8)}, Prepared: nothing, Run: wait}
		if _, err := c.Post(ctx, job); err != nil {
			resume()
			return nil, fmt.Errorf("fabric: hold: %w", err)
		}
	}
	busy.Wait()
	return resume, nil
}
