package host

import (
	"fmt"
	"net"

	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// maxLinks of one peer: it needs one, and others while the first is dying.
const maxLinks = 4

// serve answers a peer until its link ends.
func (f *Fabric) serve(conn *net.UnixConn, hello mrdn.Hello) error {
	var s *stream
	server := link.NewServer(link.ServerOptions{
		Peer: hello.Agent, Incarnation: hello.Incarnation, Regions: &f.regions, Guard: f.options.Guard,
		Events: f.options.Events, MaxTransfers: f.options.MaxTransfers, OnLost: func(error) { f.forget(s) },
	})
	s, err := f.newStream(conn, hello.Agent, server)
	if err != nil {
		return err
	}
	server.Attach(s.lending)
	if err := f.keep(s); err != nil {
		s.Close()
		return err
	}
	s.wire.run()
	return nil
}

// keep lets Deregister and Close find an end of a link.
func (f *Fabric) keep(s *stream) error {
	_, serves := s.engine.(*link.Server)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fabric.ErrClosed
	}
	links := 0
	for other := range f.streams {
		if _, too := other.engine.(*link.Server); too && other.peer == s.peer {
			links++
		}
	}
	if serves && links >= maxLinks {
		return fmt.Errorf("%w: %s has %d links here already", fabric.ErrBusy, s.peer, links)
	}
	f.streams[s] = struct{}{}
	return nil
}

func (f *Fabric) forget(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s)
}
