package agent_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// flaky is a fabric that fails on purpose. What no test scripts goes to the
// real fabric beneath.
type flaky struct {
	fabric.Fabric
	script *script
}

// script says how a flaky fabric behaves; set it before the fabric is used.
type script struct {
	// connect may wait, and fails with what it returns.
	connect func(ctx context.Context) error
	// prepare may wait.
	prepare func()
	// post is asked instead of the real fabric.
	post func(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error)
	// notify, where it fails, fails before or after the real one was asked.
	notify func(send func() error) error
	// close may wait.
	close func()
	// stop ends what is held; by default as not submitted.
	stop func(h *held, cause error)
}

func (flaky) Name() string { return "flaky" }

func (f flaky) Connect(ctx context.Context, p fabric.Peer) (fabric.Link, error) {
	if f.script.connect != nil {
		if err := f.script.connect(ctx); err != nil {
			return nil, err
		}
	}
	l, err := f.Fabric.Connect(ctx, p)
	if err != nil {
		return nil, err
	}
	return flakyLink{l, f.script}, nil
}

type flakyLink struct {
	fabric.Link
	script *script
}

func (l flakyLink) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	if l.script.prepare != nil {
		l.script.prepare()
	}
	return l.Link.Prepare(op, local, remote)
}

func (l flakyLink) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	if l.script.post != nil {
		return l.script.post(ctx, p, o)
	}
	return l.Link.Post(ctx, p, o)
}

func (l flakyLink) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	send := func() error { return l.Link.Notify(ctx, id, payload) }
	if l.script.notify != nil {
		return l.script.notify(send)
	}
	return send()
}

func (l flakyLink) Close(ctx context.Context) error {
	if l.script.close != nil {
		l.script.close()
	}
	return l.Link.Close(ctx)
}

func (s *script) open(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	f, err := overTCP(ctx, self)
	return flaky{f, s}, err
}

// steady is a second fabric that works.
type steady struct{ fabric.Fabric }

func (steady) Name() string { return "steady" }

func overSteady(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	f, err := overTCP(ctx, self)
	return steady{f}, err
}

// held is what a flaky fabric was posted and neither moves nor ends by itself.
type held struct {
	fabric.PostOptions
	deadline time.Time

	mu       sync.Mutex // protects transfer, as NewTransfer wants it
	transfer *fabric.Transfer
}

func (h *held) finish(state fabric.State, err error) {
	h.mu.Lock()
	t := h.transfer
	h.mu.Unlock()
	t.Finish(state, err)
}

// hold makes a script whose posts are held; each is sent on the channel.
func hold() (*script, <-chan *held) {
	posts := make(chan *held, 16)
	s := &script{stop: func(h *held, cause error) { h.finish(fabric.NotSubmitted, cause) }}
	s.post = func(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
		h := &held{PostOptions: o}
		h.deadline, _ = ctx.Deadline()
		h.mu.Lock()
		defer h.mu.Unlock()
		var err error
		if h.transfer, err = fabric.NewTransfer(ctx, fabric.SystemClock, p, o.ID, func(cause error) { s.stop(h, cause) }); err != nil {
			return nil, err
		}
		posts <- h
		return h.transfer, nil
	}
	return s, posts
}

// pair is two agents, of which a has the scripts' fabrics first, in their order,
// and a request of a's to b.
type pair struct {
	a, b    *side
	peer    *agent.Peer
	request *agent.Request
}

func couple(t *testing.T, openers ...agent.Opener) *pair {
	t.Helper()
	return coupleOf(t, agent.Options{Fabrics: openers})
}

func coupleOf(t *testing.T, o agent.Options) *pair {
	t.Helper()
	p := &pair{}
	o.Name = "a"
	p.a = start(t, o)
	o.Name = "b"
	p.b = start(t, o)
	var err error
	if p.peer, err = p.a.LoadMetadata(p.b.MetadataBlob()); err != nil {
		t.Fatal(err)
	}
	local, remote := lists(t, p.a, p.peer, p.b, blocks)
	p.request = mustPrepare(t, p.a, local, remote)
	return p
}

const blocks = 4

func (p *pair) post(t *testing.T, o agent.PostOptions) *agent.Transfer {
	t.Helper()
	tr, err := p.request.Post(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// arrived demands that b has what a sent.
func (p *pair) arrived(t *testing.T) {
	t.Helper()
	for i := range blocks {
		if string(p.a.bytes(i, blocks)) != string(p.b.bytes(i, blocks)) {
			t.Errorf("block %d did not arrive", i)
		}
	}
}

// notified takes so many notifications, and gives one more a chance to show up.
func notified(t *testing.T, s *side, times int) {
	t.Helper()
	for i := range times {
		select {
		case <-s.Notifications():
		case <-time.After(time.Minute):
			t.Fatalf("notified %d times, want %d", i, times)
		}
	}
	select {
	case n := <-s.Notifications():
		t.Errorf("notified once too often: %+v", n)
	case <-time.After(20 * time.Millisecond):
	}
}
