package workers

import (
	"sync/atomic"

	"meridian/move/fabric"
)

// Task is a job that was posted.
type Task struct {
	Job
	Transfer *fabric.Transfer

	pool    *Pool
	running bool                  // a worker has it
	stopped atomic.Pointer[error] // why it is to end; the first reason counts
}

// Stopped is nil for as long as the task may go on.
func (t *Task) Stopped() error {
	if cause := t.stopped.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Stop ends the task: at once when no worker has it yet, else at its next
// piece. It does not wait.
func (t *Task) Stop(cause error) {
	t.stopped.CompareAndSwap(nil, &cause)
	t.pool.mu.Lock()
	_, posted := t.pool.tasks[t]
	waiting := posted && !t.running
	if waiting {
		delete(t.pool.tasks, t)
	}
	t.pool.mu.Unlock()
	if waiting {
		t.Transfer.Finish(fabric.NotSubmitted, t.Stopped())
	}
}
