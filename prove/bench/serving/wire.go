package serving

import (
	"io"
	"net"
	"sync"
)

// wire passes connections on to an engine, and can be cut: then all that are there end, as
// when the engine is killed, and new ones are taken as before.
type wire struct {
	listener net.Listener
	to       string
	active   sync.WaitGroup

	mu     sync.Mutex // protects the rest
	conns  map[net.Conn]struct{}
	closed bool
}

func openWire(to string) (*wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: listener, to: to, conns: make(map[net.Conn]struct{})}
	w.active.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.active.Go(func() { w.pass(conn) })
		}
	})
	return w, nil
}

func (w *wire) address() string { return w.listener.Addr().String() }

// keep has a connection end when the wire is cut; false: it is closed already.
func (w *wire) keep(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.conns[conn] = struct{}{}
	}
	return !w.closed
}

func (w *wire) pass(from net.Conn) {
	defer w.end(from)
	to, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer w.end(to)
	if !w.keep(from) || !w.keep(to) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to) // either end ends both
		w.end(from)
	})
	_, _ = io.Copy(to, from)
	w.end(to)
	back.Wait()
}

func (w *wire) end(conn net.Conn) {
	_ = conn.Close() // what is lost with it is what a cut is for
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, conn)
}

// cut ends the connections that are there.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		_ = conn.Close()
	}
}

// close ends everything, and waits for it.
func (w *wire) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	_ = w.listener.Close()
	w.cut()
	w.active.Wait()
}
