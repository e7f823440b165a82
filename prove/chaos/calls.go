package chaos

import (
	"context"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// Post is a transfer between the same offsets of two arenas.
type Post struct {
	Peer           string
	Op             fabric.Op
	Offset, Length uint64
	// Grant is what the peer gave; the handle of a puppet fills it in.
	Grant kv.ID
	// Deadline of the transfer; 0 means none.
	Deadline     time.Duration
	Notification []byte
}

// Outcome is what became of a transfer.
type Outcome struct {
	ID    kv.ID
	State fabric.State
	// Took is how long the order took, for the test that waited for it.
	Took time.Duration
	Err  *Failure
}

// Post starts a transfer. A refusal is an outcome, not an error.
func (p *agentServer) Post(o Post, out *Outcome) error {
	start := time.Now()
	t, err := p.post(o)
	*out = Outcome{State: fabric.NotSubmitted, Took: time.Since(start), Err: failure(err)}
	if err == nil {
		out.ID = t.ID
		out.State, _ = t.Status()
	}
	return nil
}

func (p *agentServer) post(o Post) (*agent.Transfer, error) {
	r, err := p.prepare(o)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if o.Deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.Deadline)
	}
	t, err := r.Post(ctx, agent.PostOptions{Grant: o.Grant, Notification: o.Notification})
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		<-t.Done()
		cancel()
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.transfers[t.ID] = t
	return t, nil
}

func (p *agentServer) prepare(o Post) (*agent.Request, error) {
	p.mu.Lock()
	peer := p.peers[o.Peer]
	p.mu.Unlock()
	if peer == nil {
		return nil, fmt.Errorf("chaos: no peer %s", o.Peer)
	}
	regions := peer.Regions()
	if len(regions) == 0 {
		return nil, fmt.Errorf("chaos: %s has no memory that is known here", o.Peer)
	}
	local, err := p.agent.Local([]agent.Descriptor{p.descriptor(p.region, o.Offset, o.Length)})
	if err != nil {
		return nil, err
	}
	remote, err := peer.Remote([]agent.Descriptor{p.descriptor(regions[0], o.Offset, o.Length)})
	if err != nil {
		return nil, err
	}
	return p.agent.Prepare(o.Op, agent.Side{List: local}, agent.Side{List: remote})
}

func (p *agentServer) transfer(id kv.ID) (*agent.Transfer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transfers[id]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("chaos: no transfer %s", id)
}

// Await waits for the end of a transfer.
func (p *agentServer) Await(id kv.ID, out *Outcome) error {
	t, err := p.transfer(id)
	if err != nil {
		return err
	}
	start := time.Now()
	<-t.Done()
	_, err = t.Status()
	*out = outcome(t, start, err)
	return nil
}

func outcome(t *agent.Transfer, start time.Time, err error) Outcome {
	state, _ := t.Status()
	return Outcome{ID: t.ID, State: state, Took: time.Since(start), Err: failure(err)}
}

// Run is the same transfer over and over.
type Run struct {
	Post
	For time.Duration
}

// Rate is how a run went.
type Rate struct {
	Transfers int
	Bytes     uint64
	Took      time.Duration
	Slowest   time.Duration
	Err       *Failure
}

// BytesPerSecond is what the run achieved.
func (r Rate) BytesPerSecond() float64 { return float64(r.Bytes) / r.Took.Seconds() }

// Run posts until the time is over, or something fails.
func (p *agentServer) Run(o Run, rate *Rate) error {
	start := time.Now()
	var err error
	for err == nil && time.Since(start) < o.For {
		before := time.Now()
		if err = p.once(o.Post); err == nil {
			rate.Transfers++
			rate.Bytes += o.Length
			rate.Slowest = max(rate.Slowest, time.Since(before))
		}
	}
	rate.Took, rate.Err = time.Since(start), failure(err)
	return nil
}

func (p *agentServer) once(o Post) error {
	t, err := p.post(o)
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.transfers, t.ID)
	p.mu.Unlock()
	return t.Await(context.Background())
}
