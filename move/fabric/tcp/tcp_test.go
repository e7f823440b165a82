package tcp

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate stands before a fabric's listener: it can hold everything that passes,
// and cut it all at once.
type gate struct {
	listener net.Listener
	target   string
	wait     sync.WaitGroup

	mu    sync.Mutex
	open  *sync.Cond // broadcast when shut changes
	shut  bool
	conns map[net.Conn]bool
	cut   bool
}

func newGate(t testing.TB, target string) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: listener, target: target, conns: make(map[net.Conn]bool)}
	g.open = sync.NewCond(&g.mu)
	g.wait.Go(g.accept)
	return g
}

func (g *gate) accept() {
	for {
		near, err := g.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", g.target)
		if err != nil || !g.keep(near, far) {
			near.Close()
			continue
		}
		g.wait.Go(func() { g.pump(far, near) })
		g.wait.Go(func() { g.pump(near, far) })
	}
}

func (g *gate) keep(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.cut {
			c.Close()
		}
		g.conns[c] = true
	}
	return !g.cut
}

func (g *gate) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		g.mu.Lock()
		for g.shut && !g.cut {
			g.open.Wait()
		}
		g.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (g *gate) setShut(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.open.Broadcast()
}

// sever resets every connection.
func (g *gate) sever() {
	g.mu.Lock()
	g.cut = true
	for c := range g.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	g.open.Broadcast()
	g.mu.Unlock()
	g.listener.Close()
}

// gated is a fabric that peers reach through a gate.
type gated struct {
	*Fabric
	gate *gate
}

// Close takes the gate down too.
func (g *gated) Close(ctx context.Context) error {
	err := g.Fabric.Close(ctx)
	g.gate.sever()
	g.gate.wait.Wait()
	return err
}

func (g *gated) Address() []byte { return []byte(g.gate.listener.Addr().String()) }

func suite(o Options) fabrictest.Options {
	return fabrictest.Options{
		Sums: true,
		Open: func(t testing.TB, self fabric.Peer, events fabric.Events, guard fabric.Guard) fabric.Fabric {
			o := o
			o.Agent, o.Incarnation, o.Listen, o.Events, o.Guard = self.Name, self.Incarnation, "127.0.0.1:0", events, guard
			f, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			g := newGate(t, string(f.Address()))
			return &gated{f, g}
		},
		Kill: func(f fabric.Fabric) { f.(*gated).gate.sever() },
		Stall: func(_, far fabric.Fabric) func() {
			g := far.(*gated).gate
			g.setShut(true)
			return func() { g.setShut(false) }
		},
	}
}

func TestSuite(t *testing.T) { fabrictest.Run(t, suite(Options{})) }

// One stream and small chunks, between agents that prove that they know the
// cell's key: the same promises.
func TestSuiteOneStream(t *testing.T) {
	key, err := trust.OpenCellKey(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	o := suite(Options{Streams: 1, ChunkBytes: 4 << 10, Key: &key})
	o.Brief = true
	fabrictest.Run(t, o)
}

// The same promises with TLS, where every byte passes through a buffer.
func TestSuiteTLS(t *testing.T) {
	source := sealing(t)
	o := suite(Options{})
	o.Brief = true
	o.Open = func(t testing.TB, self fabric.Peer, events fabric.Events, guard fabric.Guard) fabric.Fabric {
		return suite(Options{TLS: source(self.Name)}).Open(t, self, events, guard)
	}
	fabrictest.Run(t, o)
}
