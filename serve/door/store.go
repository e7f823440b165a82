package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"meridian/serve/door/doorpb"
)

// ErrNoStore means that the agent has no object cache, or is older than it.
var ErrNoStore = errors.New("door: this agent has no object cache")

// ErrHeld means that an agent that hangs may still read or write memory that was given
// to it: that memory is never to be used again.
var ErrHeld = errors.New("door: the agent does not answer, and may have the memory still")

// StoreOptions configures OpenStore.
type StoreOptions struct {
	// Socket is the agent's door.
	Socket string
	// Tenant is whose keys are meant.
	Tenant string
	// Software is for the agent's log; default "meridian".
	Software string
}

// Store uses the object cache of an agent, as a client that is no engine. Its methods
// may be called from several goroutines. A request whose context ends is still
// waited for, for as long as the agent may take: its memory is not the caller's before.
type Store struct {
	options StoreOptions

	mu   sync.Mutex // protects the rest
	line *storeLine // nil before the first request, and when the agent was lost
	shut bool
}

// storeLine is one connection.
type storeLine struct {
	*link
	agent string
	ended chan struct{} // closed when the agent has ended it

	mu      sync.Mutex // protects the rest
	next    uint64
	pending map[uint64]chan storeAnswer
	left    bool
}

type storeAnswer struct {
	reply *doorpb.Reply
	file  *os.File
}

// OpenStore dials the agent.
func OpenStore(ctx context.Context, o StoreOptions) (*Store, error) {
	o.Software = cmp.Or(o.Software, "meridian")
	s := &Store{options: o}
	if _, err := s.current(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the connection. What is open comes to nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	line := s.line
	s.line, s.shut = nil, true
	s.mu.Unlock()
	if line == nil {
		return nil
	}
	return line.leave()
}

// Agent is the name of the agent that answers.
func (s *Store) Agent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == nil {
		return ""
	}
	return s.line.agent
}

// current is the connection, or a new one where there is none.
func (s *Store) current(ctx context.Context) (*storeLine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return nil, ErrClosed
	}
	if s.line != nil && !s.line.isOver() {
		return s.line, nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	l, err := dial(ctx, s.options.Socket)
	if err != nil {
		return nil, fmt.Errorf("door: %s: %w", s.options.Socket, err)
	}
	line, err := l.openStore(ctx, s.options.Software)
	if err != nil {
		return nil, fmt.Errorf("door: %s: %w", s.options.Socket, errors.Join(err, l.depart()))
	}
	s.line = line
	return line, nil
}

func (l *link) openStore(ctx context.Context, software string) (*storeLine, error) {
	welcome, err := l.greet(ctx, &doorpb.Hello{Software: software, As: &doorpb.Hello_Client{Client: &doorpb.Client{}}})
	if err != nil {
		return nil, err
	}
	if !slices.Contains(l.features, FeatureStore) {
		return nil, ErrNoStore
	}
	if err := l.allowAgent(); err != nil {
		return nil, err
	}
	if err := l.conn.Socket().SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	line := &storeLine{link: l, agent: welcome.GetAgent(), ended: make(chan struct{}), pending: make(map[uint64]chan storeAnswer)}
	go line.read()
	return line, nil
}

func (l *storeLine) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

// read takes replies until the connection ends; its memory is this process's own then.
func (l *storeLine) read() {
	defer close(l.ended)
	for {
		f, err := l.conn.Read(MaxFrameBytes)
		if err != nil {
			break
		}
		var m doorpb.Reply
		if f.Type != doorpb.FrameType_FRAME_TYPE_REPLY || f.Unmarshal(&m) != nil {
			f.Close() // a newer agent's
			continue
		}
		l.mu.Lock()
		waits := l.pending[m.GetRequest()]
		delete(l.pending, m.GetRequest())
		l.mu.Unlock()
		if waits == nil {
			f.Close()
			continue
		}
		waits <- storeAnswer{&m, f.File}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = true
	for _, waits := range l.pending {
		close(waits)
	}
	l.pending = nil
	_ = l.conn.Close()
}

// leave says nothing more and waits for the end, for a moment.
func (l *storeLine) leave() error {
	l.mu.Lock()
	l.left = true
	l.mu.Unlock()
	_ = l.conn.Socket().CloseWrite()
	select {
	case <-l.ended:
		return nil
	case <-time.After(farewell):
		return ErrHeld
	}
}

// deadlines of requests, as an agent bounds them.
const (
	storeDeadline    = 10 * time.Second
	maxStoreDeadline = time.Minute
)

// ask asks, and returns when memory that the request names is the caller's again; not
// so with ErrHeld.
func (s *Store) ask(ctx context.Context, m *doorpb.Store) (*doorpb.StoreResult, *os.File, error) {
	line, err := s.current(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.askAt(ctx, line, m)
}

func (s *Store) askAt(ctx context.Context, line *storeLine, m *doorpb.Store) (*doorpb.StoreResult, *os.File, error) {
	deadline := storeDeadline
	if at, is := ctx.Deadline(); is {
		deadline = min(time.Until(at), maxStoreDeadline)
	}
	if err := ctx.Err(); err != nil || deadline <= 0 {
		return nil, nil, cmp.Or(err, context.DeadlineExceeded)
	}
	m.Tenant, m.DeadlineMs = s.options.Tenant, max(1, uint32(deadline.Milliseconds()))
	waits := make(chan storeAnswer, 1)
	line.mu.Lock()
	if line.left {
		line.mu.Unlock()
		return nil, nil, ErrLost
	}
	line.next++
	m.Request = line.next
	line.pending[m.Request] = waits
	line.mu.Unlock()
	if line.send(doorpb.FrameType_FRAME_TYPE_STORE, m, nil) != nil {
		return nil, nil, cmp.Or(line.leave(), ErrLost)
	}
	patience := time.NewTimer(deadline + answerTimeout)
	defer patience.Stop()
	select {
	case a, is := <-waits:
		if !is {
			return nil, nil, ErrLost
		}
		if p := problemOf(a.reply.GetProblem()); p != nil {
			closeAll([]*os.File{a.file})
			return nil, nil, p
		}
		return a.reply.GetStore(), a.file, nil
	case <-patience.C:
		return nil, nil, cmp.Or(line.leave(), ErrNoAnswer)
	}
}

// do asks what is answered without a descriptor.
func (s *Store) do(ctx context.Context, m *doorpb.Store) (*doorpb.StoreResult, error) {
	result, file, err := s.ask(ctx, m)
	closeAll([]*os.File{file})
	return result, err
}
