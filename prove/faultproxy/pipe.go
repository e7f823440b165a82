package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// pipe is one way of one connection.
type pipe struct {
	life     context.Context // the proxy's
	way      *way            // whose faults it suffers
	twin     *pipe           // the other way, where the news of a broken receiver would go
	from, to *net.TCPConn
	// lost: some byte, or the end, was swallowed. What comes after it would
	// make no sense to the receiver.
	lost atomic.Bool
}

// packet is what was read at once, and when it is due. The last one has an end.
type packet struct {
	bytes []byte
	due   time.Time
	end   error
}

// What may be under way at a time: a generous TCP window.
const (
	packetBytes = 64 << 10
	packets     = 64
)

func (p *pipe) run() {
	queue := make(chan packet, packets)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		p.read(queue)
	})
	for next := range queue {
		if !p.pass(next) {
			break
		}
	}
	for range queue { // the reader must not wait for us
	}
	reader.Wait()
}

func (p *pipe) read(queue chan<- packet) {
	for {
		buffer := make([]byte, packetBytes)
		n, err := p.from.Read(buffer)
		queue <- packet{bytes: buffer[:n], due: time.Now().Add(p.way.delay()), end: err}
		if err != nil {
			return
		}
	}
}

// pass delivers a packet when it is due; false when nothing more can be.
func (p *pipe) pass(next packet) bool {
	if !p.sleepUntil(next.due) {
		return false
	}
	for b := next.bytes; len(b) > 0; {
		n, alive := p.step(b)
		if !alive {
			return false
		}
		b = b[n:]
	}
	if next.end != nil {
		p.finish(next.end)
		return false
	}
	return true
}

// step delivers some bytes of b, or lets the fault strike.
func (p *pipe) step(b []byte) (n int, alive bool) {
	if p.lost.Load() {
		return len(b), true
	}
	c := p.way.claim(len(b))
	switch c.strike {
	case Nothing:
		return c.pass, p.sleepUntil(c.at) && p.write(b[:c.pass])
	case Flip:
		b[0] ^= 1 << 6
	case Truncate:
		p.from.Close()
		p.to.Close()
		return 0, false
	case Reset:
		reset(p.from)
		reset(p.to)
		return 0, false
	case Swallow:
		p.lost.Store(true)
	case Stall:
		return 0, p.await(c.changed)
	}
	return 0, true
}

func (p *pipe) write(b []byte) bool {
	p.way.passed.Add(int64(len(b)))
	_, err := p.to.Write(b)
	if err != nil && !p.twin.lost.Load() && !p.twin.way.swallows() {
		reset(p.from) // the sender learns of it, as it would from a real network
	}
	return err == nil
}

// finish passes the end of the stream on, unless the way is cut.
func (p *pipe) finish(end error) {
	for !p.lost.Load() {
		strike, changed := p.way.lasting()
		switch {
		case strike == Swallow:
			p.lost.Store(true)
		case strike == Stall:
			if !p.await(changed) {
				return
			}
		case end == io.EOF:
			_ = p.to.CloseWrite()
			return
		default:
			reset(p.to)
			return
		}
	}
}

func (p *pipe) await(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-p.life.Done():
		return false
	}
}

func (p *pipe) sleepUntil(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.life.Done():
		return false
	}
}
