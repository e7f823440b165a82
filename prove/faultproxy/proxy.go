// Package faultproxy is a bad network between two processes that speak TCP. It
// carries bytes both ways and does to each way, while it runs, what a test
// asks for:
//
//	            ┌── Forward: Delay, BytesPerSecond, Strike ──┐
//	dialer ◄────┤                                            ├────► target
//	            └── Back:    Delay, BytesPerSecond, Strike ──┘
//
// Bytes, the end of a stream and a reset all travel the same way and suffer the
// same fault: where nothing gets through, neither side learns that the other is gone.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Options configures Open.
type Options struct {
	// Listen is where the dialer connects; "" takes any port of 127.0.0.1.
	Listen string
	// Target is where connections go; see Aim.
	Target string
}

// Proxy is a running proxy.
type Proxy struct {
	listener *net.TCPListener
	ways     [2]*way
	work     sync.WaitGroup
	life     context.Context // ended by Close
	end      context.CancelFunc

	mu     sync.Mutex // protects the rest
	target string
	conns  map[*net.TCPConn]struct{}
}

// Open starts a proxy without faults.
func Open(ctx context.Context, o Options) (*Proxy, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{listener: listener.(*net.TCPListener), target: o.Target, conns: make(map[*net.TCPConn]struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	for _, w := range []Way{Forward, Back} {
		p.ways[w] = newWay()
	}
	p.work.Go(p.accept)
	return p, nil
}

// Address is what the dialer connects to.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Aim sends new connections to another target.
func (p *Proxy) Aim(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Set replaces the fault of one way. The channel is closed when the fault
// strikes, which is when After more bytes have passed.
func (p *Proxy) Set(w Way, f Fault) (struck <-chan struct{}) { return p.ways[w].set(f) }

// Passed is how many bytes were handed on one way, on all connections.
func (p *Proxy) Passed(w Way) int64 { return p.ways[w].passed.Load() }

// Sever resets every connection there is, idle or not.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// Close ends every connection and waits for everything the proxy started.
func (p *Proxy) Close() error {
	p.end()
	p.Sever()
	err := p.listener.Close()
	p.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // closed before
	}
	return err
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && p.keep(near) {
			p.work.Go(func() { p.serve(near) })
		}
	}
}

// wireBytes is what a connection through the proxy holds in each direction.
const wireBytes = 256 << 10

// keep remembers a connection, so that Close finds it.
func (p *Proxy) keep(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

// serve carries one connection until neither side has anything to say.
func (p *Proxy) serve(near *net.TCPConn) {
	defer p.forget(near)
	if p.ways[Forward].swallows() {
		_, _ = io.Copy(io.Discard, near) // the side behind the hole never hears of it
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(p.life, "tcp", target)
	if err != nil {
		reset(near)
		return
	}
	far := conn.(*net.TCPConn)
	if !p.keep(far) {
		return
	}
	defer p.forget(far)
	for _, c := range []*net.TCPConn{near, far} {
		// A wire holds little. Buffers of the size that a system gives would
		// swallow whole transfers, and a slow way would seem a fast one.
		_, _ = c.SetReadBuffer(wireBytes), c.SetWriteBuffer(wireBytes)
	}
	forward := &pipe{life: p.life, way: p.ways[Forward], from: near, to: far}
	back := &pipe{life: p.life, way: p.ways[Back], twin: forward, from: far, to: near}
	forward.twin = back
	var both sync.WaitGroup
	both.Go(forward.run)
	both.Go(back.run)
	both.Wait()
}

// reset closes a connection the rude way.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}
