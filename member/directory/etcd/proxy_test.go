package etcd_test

import (
	"net"
	"path/filepath"
	"sync"
	"testing"

	"meridian/member/directory/directorytest"
)

// proxy is the network between one client and the server.
type proxy struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup

	mu    sync.Mutex // protects what follows
	reach directorytest.Reach
	heard chan struct{} // closed when words get through again
	conns map[net.Conn]struct{}
}

func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "p"))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, server: server, heard: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	close(p.heard)
	p.work.Go(p.accept)
	t.Cleanup(func() {
		p.set(directorytest.Refused)
		listener.Close()
		p.work.Wait()
	})
	return p
}

func (p *proxy) endpoint() string { return "unix://" + p.listener.Addr().String() }

func (p *proxy) set(r directorytest.Reach) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach == directorytest.Silent {
		close(p.heard)
	}
	p.reach = r
	switch r {
	case directorytest.Silent:
		p.heard = make(chan struct{})
	case directorytest.Refused:
		for c := range p.conns {
			c.Close()
		}
	}
}

// admit keeps a connection unless there is none to be had.
func (p *proxy) admit(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach == directorytest.Refused {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.admit(from) {
			continue
		}
		to, err := net.Dial("unix", p.server)
		if err != nil || !p.admit(to) {
			from.Close()
			continue
		}
		p.work.Go(func() { p.carry(from, to) })
		p.work.Go(func() { p.carry(to, from) })
	}
}

func (p *proxy) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	words := make([]byte, 32<<10)
	for {
		n, err := from.Read(words)
		p.mu.Lock()
		heard := p.heard
		p.mu.Unlock()
		<-heard
		if err != nil {
			return
		}
		if _, err := to.Write(words[:n]); err != nil {
			return
		}
	}
}
