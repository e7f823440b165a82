package doorserver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// storeRequests is where the Store requests of one connection are done, each by a goroutine
// of its own. They end with the connection, which ends after them: memory that came
// with one is its client's again by then.
type storeRequests struct {
	conn *conn
	life context.Context // of everything here
	end  context.CancelFunc
	wait sync.WaitGroup
	// copying holds who has memory of the client: each may take a thread for as
	// long as the client likes.
	copying chan struct{}

	mu      sync.Mutex // protects the rest
	closed  bool
	running int
	maps    bool // the client was given the arena
	opened  map[openedKey]*opened
}

type openedKey struct{ tenant, key string }

// opened is an object that the connection's client writes. Who has its turn may use
// the writer, which is nil before there is one and after its end.
type opened struct {
	turn   chan struct{} // holds one
	writer Writer
}

func newStoreRequests(c *conn) *storeRequests {
	d := &storeRequests{conn: c, copying: make(chan struct{}, batchWorkers), opened: make(map[openedKey]*opened)}
	d.life, d.end = context.WithCancel(c.server.life)
	return d
}

// close ends what is under way and aborts what is open. It returns when nothing of
// the client's memory is touched any more.
func (d *storeRequests) close() {
	d.end()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wait.Wait()
	for at, o := range d.opened { // no request runs any more, so without the lock
		if err := o.abort(); err != nil {
			d.conn.server.options.Logger.Warn("room for an object was not given back", "key", clipped(at.key), "peer", d.conn.peer.String(), "error", err)
		}
	}
}

func (o *opened) abort() error {
	if o.writer == nil {
		return nil
	}
	ctx, cancel := bounded(10 * time.Second)
	defer cancel()
	return o.writer.Abort(ctx)
}

func clipped(key string) string { return fmt.Sprintf("%.80q", key) }

// takeStore admits a Store, or refuses it. A problem that it returns ends the
// connection.
func (c *conn) takeStore(f *door.Frame) *door.Problem {
	switch {
	case c.server.options.Cache == nil:
		p := problem(door.CodeUnsupported, "this agent has no object cache")
		p.Hint = "turn store.enabled on in its configuration"
		c.refuse(f, p)
		return nil
	case c.rank >= 0:
		c.refuse(f, problem(door.CodeOrder, "a rank does not ask the object cache; control does, or a client"))
		return nil
	case len(f.Body) > door.MaxStoreBytes:
		c.refuse(f, problem(door.CodeSize, "a Store of %d bytes, at most %d", len(f.Body), door.MaxStoreBytes))
		return nil
	}
	var m doorpb.Store
	if err := f.UnmarshalRequest(&m); err != nil {
		return problemOf(err)
	}
	if p := c.desk.begin(&m); p != nil {
		c.refuse(f, p)
	}
	return nil
}

const (
	defaultStoreDeadline = 10 * time.Second
	maxStoreDeadline     = time.Minute
)

// begin does a request, or says why not. What it asks for has been bounded by then.
func (d *storeRequests) begin(m *doorpb.Store) *door.Problem {
	job, p := d.plan(m)
	if p != nil {
		return p
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return problem(door.CodeGone, "the connection ends")
	case d.running >= door.MaxStoreRequests:
		return busy(fmt.Sprintf("%d requests to the object cache are under way on this connection, which is the limit", d.running))
	}
	d.running++
	deadline := min(time.Duration(m.GetDeadlineMs())*time.Millisecond, maxStoreDeadline)
	if deadline == 0 {
		deadline = defaultStoreDeadline
	}
	d.wait.Go(func() {
		ctx, cancel := context.WithTimeout(d.life, deadline)
		defer cancel()
		d.answer(m.GetRequest(), job(ctx))
	})
	return nil
}

// storeReply is what comes of a request.
type storeReply struct {
	result  *doorpb.StoreResult
	problem *door.Problem
	file    *os.File // goes along
}

func (d *storeRequests) answer(request uint64, o storeReply) {
	c := d.conn
	if o.problem != nil {
		c.server.count(o.problem)
	}
	d.mu.Lock()
	d.running--
	d.mu.Unlock()
	if request == 0 {
		closeFile(o.file)
		return
	}
	reply := &doorpb.Reply{Request: request}
	if o.problem != nil {
		reply.Problem = door.ProblemMessage(o.problem)
	}
	if o.result != nil {
		reply.With = &doorpb.Reply_Store{Store: o.result}
	}
	c.sendWith(frame(doorpb.FrameType_FRAME_TYPE_REPLY, reply), o.file)
}
