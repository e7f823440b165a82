package gateway

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// runningRequests are those inside, for the debug page.
type runningRequests struct {
	mu  sync.Mutex // protects all
	all map[*exchange]runningRequest
}

// runningRequest is what may be told of a request while it runs.
type runningRequest struct {
	ID       string    `json:"id"`
	Began    time.Time `json:"began"`
	Endpoint string    `json:"endpoint"`
	Model    string    `json:"model"`
	Stream   bool      `json:"stream"`
	Tokens   int       `json:"prompt_tokens_about"`
}

// add returns what takes it out again.
func (r *runningRequests) add(x *exchange) (remove func()) {
	entry := runningRequest{x.life.Record.ID, x.life.Record.Began, x.life.Record.Endpoint, x.life.Record.Model, x.life.Record.Stream, x.life.Request.Tokens}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*exchange]runningRequest)
	}
	r.all[x] = entry
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, x)
	}
}

// list is the oldest first.
func (r *runningRequests) list() []runningRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.all), func(a, b runningRequest) int { return a.Began.Compare(b.Began) })
}
