// Package edge is where users and operators come in: it bounds connections, requests and bodies,
// asks for keys, and writes answers that must be taken in time.
package edge

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
	"time"

	"meridian/serve/openai"
)

// Listener is one HTTP server. It lets so many connections in at a time; where
// all are taken, the one that has sent no request for the longest time makes
// room, and else the newcomer is told to come back.
type Listener struct {
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
	HeaderTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	writeTimeout   = time.Minute // handlers of requests set a time of their own, piece by piece
	maxHeaderBytes = 64 << 10
	maxStreams     = 128 // requests at a time of one HTTP/2 connection
	// sendBuffer is what the kernel keeps for a client that does not read.
	sendBuffer = 256 << 10
)

// Address is where and how to listen.
type Address struct {
	Host        string      // host:port
	TLS         *tls.Config // nil for none
	Connections int         // at a time
}

// Listen serves who comes in at an address. Requests end with life, whatever they are doing.
func Listen(ctx context.Context, at Address, handler http.Handler, life context.Context, logger *slog.Logger) (*Listener, error) {
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.Host)
	if err != nil {
		return nil, fmt.Errorf("gateway: cannot listen on %s: %w", at.Host, err)
	}
	l := &Listener{
		socket: socket, served: make(chan error, 1), most: at.Connections, hasTLS: at.TLS != nil,
		leaving: make(chan struct{}, maxLeaving), open: make(map[net.Conn]*list.Element),
	}
	l.server = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: HeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext:       func(net.Listener) context.Context { return life },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ConnState:         l.follow,
	}
	serve := func() error { return l.server.Serve(turnstile{socket, l}) }
	if at.TLS != nil {
		l.server.TLSConfig = at.TLS.Clone()
		serve = func() error { return l.server.ServeTLS(turnstile{socket, l}, "", "") }
	}
	go func() { l.served <- serve() }()
	return l, nil
}

// turnstile is a listener's socket as its server sees it.
type turnstile struct {
	net.Listener
	l *Listener
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
func (l *Listener) hasRoom() bool {
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
func (l *Listener) follow(conn net.Conn, state http.ConnState) {
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

// Addr is where it listens.
func (l *Listener) Addr() string { return l.socket.Addr().String() }

// Secure tells whether it speaks TLS.
func (l *Listener) Secure() bool { return l.hasTLS }

// TurnedAway is how many connections found no room.
func (l *Listener) TurnedAway() uint64 { return l.refused.Load() }

// Idling is how many connections have sent no request.
func (l *Listener) Idling() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle.Len()
}

// Connections is how many there are.
func (l *Listener) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// forget is called with mu.
func (l *Listener) forget(conn net.Conn) {
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
func (l *Listener) refuse(conn net.Conn) {
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

// Drain stops accepting and waits for what runs, until ctx ends.
func (l *Listener) Drain(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if ctx.Err() != nil {
		return nil // what still runs is ended next
	}
	return err
}

// Close ends what runs, and waits for it.
func (l *Listener) Close() error {
	err := l.server.Close()
	if served := <-l.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	l.inside.Wait() // no client comes in any more
	return err
}

// WithinTime gives every request a time for its body, also where the handler
// does not read it: the server does so before it answers. Handlers that do may
// give a time of their own.
func WithinTime(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) // a recorder in a test has none
		}
		next.ServeHTTP(w, r)
	})
}
