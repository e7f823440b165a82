// Package workers runs transfers on a bounded number of workers. It is the common
// part of the fabrics that reach both sides from this process: they say how
// bytes move, the pool says when, and how it ends.
//
//	Post ──► queue ──► worker: Job.Run ──► Finish
//	           │             │
//	         Stop          Stop: Run sees it in Task.Stopped, between two pieces
//	           ▼             ▼
//	     NotSubmitted    what Run returns
//
// A repeated ID finds its transfer, running or ended, so that nothing moves and
// the peer is not notified twice.
package workers

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// Options configures Open. Zero values take the defaults.
type Options struct {
	// Workers run transfers, one each at a time; default one per core.
	Workers int
	// MaxTransfers bounds what was posted and has not ended; default 4096.
	MaxTransfers int
	// BytesPerSecond is what Estimate assumes before anything was measured;
	// default 4 GB/s.
	BytesPerSecond float64
}

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.MaxTransfers = cmp.Or(o.MaxTransfers, 4096)
	o.BytesPerSecond = cmp.Or(o.BytesPerSecond, 4e9)
	return o
}

func (o Options) validate() error {
	if o.Workers < 1 || o.Workers > 1024 {
		return fmt.Errorf("fabric: %d workers, must be 1 to 1024", o.Workers)
	}
	if o.MaxTransfers < 1 || o.MaxTransfers > 1<<20 {
		return fmt.Errorf("fabric: %d transfers at a time, must be 1 to %d", o.MaxTransfers, 1<<20)
	}
	return nil
}

// Pool is the workers and what they have to do.
type Pool struct {
	size    int // how many workers
	limit   int
	queue   chan *Task
	workers sync.WaitGroup

	mu     sync.Mutex // protects the rest, and Task.running
	closed bool
	tasks  map[*Task]struct{} // posted and not ended
	posts  posts
	pace   throughput
}

// Open starts the workers.
func Open(o Options) (*Pool, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Pool{
		size: o.Workers, limit: o.MaxTransfers, queue: make(chan *Task, o.MaxTransfers), tasks: make(map[*Task]struct{}),
		posts: newPosts(2 * o.MaxTransfers), pace: throughput{nsPerByte: 1e9 / o.BytesPerSecond},
	}
	for range o.Workers {
		c.workers.Go(c.work)
	}
	return c, nil
}

// Job is what a fabric wants done.
type Job struct {
	// Group is what Fence and Drain find it by: the link it was posted on. An ID
	// is one transfer within its group.
	Group    any
	ID       kv.ID
	Prepared *fabric.Prepared
	// Run moves the bytes. It asks Task.Stopped between any two pieces, so that
	// a stop takes no longer than one piece, and returns how it ended.
	Run func(*Task) (fabric.State, error)
}

// Post admits a job, or returns the transfer that its ID already has. Without
// room it refuses with ErrBusy.
func (c *Pool) Post(ctx context.Context, j Job) (*fabric.Transfer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fabric.ErrClosed
	}
	if t := c.posts.find(postKey{j.Group, j.ID}); t != nil {
		return t, nil
	}
	// What was stopped while it waited is over, yet in the queue until a worker
	// comes by: both must have room.
	if len(c.tasks) >= c.limit || len(c.queue) == cap(c.queue) {
		return nil, fmt.Errorf("%w: %d transfers are running", fabric.ErrBusy, len(c.tasks))
	}
	t := &Task{Job: j, pool: c}
	var err error
	if t.Transfer, err = fabric.NewTransfer(ctx, fabric.SystemClock, j.Prepared, j.ID, t.Stop); err != nil {
		return nil, err
	}
	c.tasks[t] = struct{}{}
	c.posts.add(postKey{j.Group, j.ID}, t.Transfer)
	c.queue <- t
	return t.Transfer, nil
}

func (c *Pool) work() {
	for t := range c.queue {
		if !c.begin(t) {
			continue
		}
		start := time.Now()
		state, err := t.Run(t)
		c.end(t, state, time.Since(start))
		t.Transfer.Finish(state, err)
	}
}

// begin is false for what was stopped while it waited.
func (c *Pool) begin(t *Task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, t.running = c.tasks[t]
	return t.running
}

func (c *Pool) end(t *Task, state fabric.State, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, t)
	if state == fabric.Done {
		c.pace.measured(t.Transfer.Bytes, took)
	}
}

func (c *Pool) find(match func(*Task) bool) []*Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*Task
	for t := range c.tasks {
		if match(t) {
			found = append(found, t)
		}
	}
	return found
}

// Drain waits for the end of what match picks.
func (c *Pool) Drain(ctx context.Context, match func(*Task) bool) error {
	return wait(ctx, c.find(match))
}

// Fence stops what match picks and returns when it is over: nothing of it
// touches memory any more.
func (c *Pool) Fence(ctx context.Context, cause error, match func(*Task) bool) error {
	return StopAll(ctx, cause, c.find(match))
}

// StopAll stops tasks, of any pool, and returns when they are over.
func StopAll(ctx context.Context, cause error, tasks []*Task) error {
	for _, t := range tasks {
		t.Stop(cause)
	}
	return wait(ctx, tasks)
}

func wait(ctx context.Context, tasks []*Task) error {
	for _, t := range tasks {
		select {
		case <-t.Transfer.Done():
		case <-ctx.Done():
			return fmt.Errorf("fabric: transfer %s is still running: %w", t.ID, ctx.Err())
		}
	}
	return nil
}

// Estimate is how long a transfer would take once it runs.
func (c *Pool) Estimate(bytes, pieces uint64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pace.estimate(bytes, pieces)
}

// Close stops everything and waits for the workers. It may be called again.
func (c *Pool) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.queue)
	}
	c.mu.Unlock()
	everything := func(*Task) bool { return true }
	if err := c.Fence(ctx, fabric.ErrClosed, everything); err != nil {
		return err
	}
	c.workers.Wait() // nothing is left to do but to see the closed queue
	return nil
}
