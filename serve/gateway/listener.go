package gateway

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"meridian/serve/openai"
)

// listener is one HTTP server. It lets so many connections in at a time; where
// all are taken, the one that has sent no request for the longest time makes
// room, and else the newcomer is told to come back.
type listener struct {
	socket net.Listener
	server *http.Server
	served chan error
	// inside counts connections: closing a server does not wait for them.
	inside  sync.WaitGroup
	most    int
	hasTLS  bool
	leaving chan struct{} // a place for each that is told to come back
	refused atomic.Uint64

	mu   sync.Mutex // protects what follows
	open map[net.Conn]*list.Element
	idle list.List // of idleConn: connections that have sent no request, the longest first
}

// idleConn is a connection whose next request has not come.
type idleConn struct {
	conn  net.Conn
	since time.Time
	fresh bool // nor has any
}

// Bounds on what a stranger can take of the gateway before it is known what it
// wants.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	writeTimeout   = time.Minute // handlers of requests set a time of their own, piece by piece
	maxHeaderBytes = 64 << 10
	maxStreams     = 128 // requests at a time of one HTTP/2 connection
	// sendBuffer is what the kernel keeps for a client that does not read.
	sendBuffer = 256 << 10

	adminConnections = 64
)

// address is where and how to listen.
type address struct {
	host        string      // host:port
	tls         *tls.Config // nil for none
	connections int         // at a time
}

func (g *Gateway) listen(ctx context.Context, at address, handler http.Handler) (*listener, error) {
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.host)
	if err != nil {
		return nil, fmt.Errorf("gateway: cannot listen on %s: %w", at.host, err)
	}
	l := &listener{
		socket: socket, served: make(chan error, 1), most: at.connections, hasTLS: at.tls != nil,
		leaving: make(chan struct{}, maxLeaving), open: make(map[net.Conn]*list.Element),
	}
	l.server = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext:       func(net.Listener) context.Context { return g.life },
		ErrorLog:          slog.NewLogLogger(g.options.Logger.Handler(), slog.LevelDebug),
		ConnState:         l.follow,
	}
	serve := func() error { return l.server.Serve(turnstile{socket, l}) }
	if at.tls != nil {
		l.server.TLSConfig = at.tls.Clone()
		serve = func() error { return l.server.ServeTLS(turnstile{socket, l}, "", "") }
	}
	go func() { l.served <- serve() }()
	return l, nil
}

// turnstile is a listener's socket as its server sees it.
type turnstile struct {
	net.Listener
	l *listener
}

func (t turnstile) Accept() (net.Conn, error) {
	for {
		conn, err := t.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, isTCP := conn.(*net.TCPConn); isTCP {
			_ = tcp.SetWriteBuffer(sendBuffer)
		}
		if t.l.hasRoom() {
			return conn, nil
		}
		t.l.refuse(conn)
	}
}

// hasRoom is true where one more connection may come in. The server calls follow
// for it before it accepts the next.
func (l *listener) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) < l.most {
		return true
	}
	oldest := l.idle.Front()
	if oldest == nil {
		return false
	}
	waits := oldest.Value.(idleConn)
	if waits.fresh && time.Since(waits.since) < freshTime {
		return false
	}
	l.forget(waits.conn)
	conn := waits.conn
	if secure, isTLS := conn.(*tls.Conn); isTLS {
		conn = secure.NetConn() // TLS says goodbye first, for which a client that does not read has seconds
	}
	_ = conn.Close() // its client asks anew, as after every idle time
	return true
}

// follow takes in what becomes of a connection.
func (l *listener) follow(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		l.inside.Add(1)
		l.open[conn] = l.idle.PushBack(idleConn{conn, time.Now(), true})
	case http.StateIdle:
		if _, isOpen := l.open[conn]; isOpen {
			l.open[conn] = l.idle.PushBack(idleConn{conn, time.Now(), false})
		}
	case http.StateActive:
		if at := l.open[conn]; at != nil {
			l.idle.Remove(at)
			l.open[conn] = nil
		}
	case http.StateClosed, http.StateHijacked:
		l.forget(conn)
		l.inside.Done()
	}
}

// connections is how many there are.
func (l *listener) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// forget is called with mu.
func (l *listener) forget(conn net.Conn) {
	if at := l.open[conn]; at != nil {
		l.idle.Remove(at)
	}
	delete(l.open, conn)
}

const (
	// maxLeaving is how many are told at a time that there is no room; others are
	// only closed.
	maxLeaving = 64
	// leaveTimeout is how long one may take to hear it.
	leaveTimeout = time.Second
	// freshTime is what a new connection has for its first request, handshake and
	// all, while others wait for its place.
	freshTime = 2 * time.Second
)

// refuse tells a connection that there is no room, and closes it. With TLS it
// takes a handshake to say anything, so nothing is said.
func (l *listener) refuse(conn net.Conn) {
	l.refused.Add(1)
	select {
	case l.leaving <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	l.inside.Go(func() {
		defer func() { <-l.leaving }()
		defer conn.Close()
		tcp, isTCP := conn.(*net.TCPConn)
		if l.hasTLS || !isTCP || conn.SetDeadline(time.Now().Add(leaveTimeout)) != nil {
			return
		}
		if _, err := io.WriteString(conn, noRoom); err == nil && tcp.CloseWrite() == nil {
			// A socket that is closed before its request was read is reset, and the
			// answer lost with it.
			_, _ = io.CopyN(io.Discard, conn, maxHeaderBytes)
		}
	})
}

// noRoom is the answer for those that were not let in.
var noRoom = func() string {
	fault := openai.Unavailable("the gateway has as many connections as it may; try again").WithCode(openai.CodeOverloaded)
	body := append(fault.JSON(), '\n')
	return fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}()

// drain stops accepting and waits for what runs, until ctx ends.
func (l *listener) drain(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if ctx.Err() != nil {
		return nil // what still runs is ended next
	}
	return err
}

// close ends what runs, and waits for it.
func (l *listener) close() error {
	err := l.server.Close()
	if served := <-l.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	l.inside.Wait() // nobody comes in any more
	return err
}

const (
	// otherFiles are descriptors for anything but clients and legs: listeners,
	// probes, cache events, the directory, records, whoever is told to leave.
	otherFiles = 256
	// otherConnections are for clients that ask for anything but tokens.
	otherConnections = 64
)

// connectionLimit is how many clients' connections there may be where nothing
// is said: twice as many as requests may be inside, for clients that keep theirs
// between requests, as far as this process may open files beside those for the
// two legs of each request that runs. Where it may open too few even for those,
// clients get a quarter of them.
func connectionLimit(o *Options, files uint64) int {
	wanted := 2*(o.MaxRunning+max(o.MaxWaiting, 0)) + otherConnections
	most := int(min(files, 1<<30))
	return max(min(wanted, max(most-2*o.MaxRunning-otherFiles, most/4)), 1)
}

// openFiles is how many descriptors this process may have.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1024 // what systems give at least
	}
	return limit.Cur
}

// withinTime gives every request a time for its body, also where the handler
// does not read it: the server does so before it answers. Handlers that do may
// give a time of their own.
func withinTime(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) // a recorder in a test has none
		}
		next.ServeHTTP(w, r)
	})
}
