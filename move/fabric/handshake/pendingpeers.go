package handshake

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/move/fabric"
	"meridian/move/mrdn"
)

var errNoMetadata = fmt.Errorf("%w: there is no metadata to fetch", fabric.ErrUnsupported)

// PendingOptions says who listens, and what for.
type PendingOptions struct {
	Self Self
	// Secure runs the handshake of TLS and returns the certificate's name; nil
	// where there is none.
	Secure func(net.Conn) (secured net.Conn, certified string, err error)
	// Judge refuses a dialer for what its Hello says.
	Judge func(net.Conn, mrdn.Hello) error
	// Metadata answers a dialer who came to fetch it; nil refuses.
	Metadata func() []byte
	// Serve has the connection until it returns; then it is closed.
	Serve func(net.Conn, mrdn.Hello) error
	// Refused hears of all who were turned away.
	Refused func(from string, err error)
	// Patience is how long a stranger may take to say who it is.
	Patience time.Duration
	// Strangers bounds how many do so at a time; default 256. Beyond it the one
	// that has waited longest is turned away, so that a crowd which never says a
	// word does not keep newcomers out.
	Strangers int
	Logger    *slog.Logger
}

// PendingPeers takes connections, hears each out and serves it.
type PendingPeers struct {
	options  PendingOptions
	listener net.Listener
	wait     sync.WaitGroup
	// turnedAway counts strangers since the last one that came in.
	turnedAway atomic.Int64

	mu        sync.Mutex // protects the rest
	strangers []net.Conn // in the order in which they came
	closed    bool
}

// Listen takes connections of a listener until Close.
func Listen(listener net.Listener, o PendingOptions) *PendingPeers {
	o.Strangers = cmp.Or(o.Strangers, 256)
	d := &PendingPeers{options: o, listener: listener}
	d.wait.Go(d.accept)
	return d
}

// Addr is where the door is.
func (d *PendingPeers) Addr() net.Addr { return d.listener.Addr() }

// Close lets no peer in any more and turns strangers away. Those who are served
// go on: their Serve ends when its owner says so, and Wait waits for it.
func (d *PendingPeers) Close() error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	for _, conn := range d.strangers {
		conn.Close()
	}
	d.mu.Unlock()
	if again {
		return nil
	}
	return d.listener.Close()
}

// Wait returns when no peer is served any more.
func (d *PendingPeers) Wait() { d.wait.Wait() }

func (d *PendingPeers) accept() {
	for {
		conn, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely: others may free some.
			d.options.Logger.Warn("cannot accept a connection", "error", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		began := time.Now()
		if !d.admit(conn) {
			conn.Close()
		}
		// Peers that are served go first: a crowd at the door waits its turn, and
		// one of which none comes in has no more than a third of the time.
		runtime.Gosched()
		if d.turnedAway.Load() > int64(d.options.Strangers) {
			time.Sleep(min(2*time.Since(began), maxPause))
		}
	}
}

// maxPause keeps newcomers from waiting behind a crowd for longer than it takes.
const maxPause = time.Millisecond

func (d *PendingPeers) admit(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if len(d.strangers) >= d.options.Strangers {
		d.strangers[0].Close()
		d.strangers = slices.Delete(d.strangers, 0, 1)
	}
	d.strangers = append(d.strangers, conn)
	d.wait.Go(func() { d.receive(conn) })
	return true
}

// receive hears a dialer out and serves it.
func (d *PendingPeers) receive(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(d.options.Patience))
	secured, hello, err := d.hear(conn)
	if err == nil && hello.Fetch {
		_, _ = secured.Write(mrdn.AppendBlob(nil, d.options.Metadata()))
	}
	d.mu.Lock()
	if i := slices.Index(d.strangers, conn); i >= 0 {
		d.strangers = slices.Delete(d.strangers, i, i+1)
	}
	d.mu.Unlock()
	if err == nil {
		d.turnedAway.Store(0)
	} else {
		d.turnedAway.Add(1)
	}
	switch {
	case err == nil && hello.Fetch:
		return
	case err == nil:
		_ = conn.SetDeadline(time.Time{})
		err = d.options.Serve(secured, hello)
	}
	if err != nil {
		from := hello.Agent
		if from == "" {
			from = conn.RemoteAddr().String()
		}
		d.options.Refused(from, err)
	}
}

func (d *PendingPeers) hear(conn net.Conn) (secured net.Conn, hello mrdn.Hello, err error) {
	certified := ""
	if d.options.Secure != nil {
		if conn, certified, err = d.options.Secure(conn); err != nil {
			return nil, mrdn.Hello{}, err
		}
	}
	hello, err = d.options.Self.Hear(conn, certified, func(h mrdn.Hello) error {
		if h.Fetch && d.options.Metadata == nil {
			return errNoMetadata
		}
		return d.options.Judge(conn, h)
	})
	return conn, hello, err
}
