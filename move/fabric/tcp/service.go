package tcp

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// service is the serving side of one connection of a peer's link.
type service struct {
	fabric *Fabric
	hello  mrdn.Hello
	server *link.Server
	large  chan []byte // of its dialers

	mu      sync.Mutex // protects the rest
	timer   *time.Timer
	streams []*stream
	gone    bool
}

// join adds a stream to the service of its link, which the first one makes.
func (f *Fabric) join(conn net.Conn, hello mrdn.Hello) (*service, *stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, fabric.ErrClosed
	}
	v := f.services[hello.Link]
	if v == nil {
		if n := f.linksOf(hello.Agent); n >= maxLinks {
			return nil, nil, fmt.Errorf("%w: %s has %d links here already", fabric.ErrBusy, hello.Agent, n)
		}
		v = f.newService(hello)
		f.services[hello.Link] = v
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone || v.hello.Agent != hello.Agent || v.hello.Incarnation != hello.Incarnation || len(v.streams) >= int(v.hello.Streams) {
		return nil, nil, fmt.Errorf("%w: the stream does not fit its link", fabric.ErrRefused)
	}
	s, err := newStream(conn, &f.options, v.server)
	if err != nil {
		return nil, nil, err
	}
	s.limits = &peerLimits{server: v.server, large: v.large}
	if !v.server.Attach(s) {
		return nil, nil, fmt.Errorf("%w: the link is gone", fabric.ErrRefused)
	}
	v.streams = append(v.streams, s)
	return v, s, nil
}

// maxLinks of one peer: it needs one, and others while the first is dying.
const maxLinks = 4

// linksOf counts a peer's links. mu is held.
func (f *Fabric) linksOf(agent string) (n int) {
	for _, v := range f.services {
		if v.hello.Agent == agent {
			n++
		}
	}
	return n
}

func (f *Fabric) newService(hello mrdn.Hello) *service {
	v := &service{fabric: f, hello: hello, large: make(chan []byte, 1)}
	v.large <- nil
	v.server = link.NewServer(link.ServerOptions{
		Peer: hello.Agent, Incarnation: hello.Incarnation, Regions: &f.regions, Guard: f.options.Guard,
		Events: f.options.Events, MaxTransfers: f.options.MaxTransfers, Clock: f.options.Clock, OnLost: func(error) { v.end() },
	})
	v.timer = time.AfterFunc(f.options.KeepAlive, v.watch)
	return v
}

// watch keeps an eye on silent streams until the service is gone.
func (v *service) watch() {
	v.mu.Lock()
	if v.gone {
		v.mu.Unlock()
		return
	}
	streams := slices.Clone(v.streams)
	v.timer.Reset(v.fabric.options.KeepAlive)
	v.mu.Unlock()
	for _, s := range streams {
		if s.keepAlive() {
			v.server.Lost(fmt.Errorf("no answer for %v", 3*s.options.KeepAlive))
		}
	}
}

// end forgets the service once its link is lost.
func (v *service) end() {
	v.mu.Lock()
	v.gone = true
	v.timer.Stop()
	v.mu.Unlock()
	v.fabric.mu.Lock()
	delete(v.fabric.services, v.hello.Link)
	v.fabric.mu.Unlock()
}
