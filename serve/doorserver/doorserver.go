// Package doorserver is the server of the engine door: engines register with the
// agent of their host, lend it their memory, offer and accept caches, and are
// fenced the moment they are gone.
//
//	engine ══ control, ranks ══► ┌──────── Server ────────┐
//	                             │ engine: control + ranks │──► agent: regions
//	       ◄══ replies, events ═ │  gathering → serving    │──► transceiver: Join, Offer, Accept
//	                             │      └───────┴► fencing │──► directory: the engine's record
//	                             └─────────────────────────┘
//
// An engine is gathering until its control has published and every rank has
// lent its memory; then it serves. The loss of any one of its connections fences
// all of it: nothing new begins, what runs is ended, its memory is deregistered
// and unmapped, and only then are its other connections ended. So the end of a
// connection tells an engine that its memory is its own again.
package doorserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/join"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/mem/vram"
	"meridian/move/transceiver"
	"meridian/serve/door"
)

// Options configures Open.
type Options struct {
	Agent       *agent.Agent
	Transceiver *transceiver.Transceiver
	// Relay is what the transceiver tells its events to.
	Relay *Relay
	// Directory is where engines are published; nil means nowhere.
	Directory directory.Directory
	// Cache is the object cache; nil means that there is none here.
	Cache Cache
	// Offload is where engines keep and find prefixes, by these terms; nil means
	// that they do not.
	Offload    PrefixCache
	CacheTerms door.CacheTerms
	// Governor decides for engines that tell of their steps; nil means that none is
	// governed.
	Governor Governor
	// VRAM is where GPU memory that engines lend is opened, and stays the caller's;
	// nil means that none is taken.
	VRAM *vram.Pool
	// Socket is the path of the door.
	Socket string
	// AllowUIDs are the users besides this one whose engines may come. With any,
	// the socket is open to all, and the kernel says who is at its other end.
	AllowUIDs []uint32
	// RequireLeg refuses what engines offer and accept that no gateway of the cell made a leg
	// for, RequireCacheLeg what they keep and find. A leg that is there is always checked, with
	// LegKey.
	RequireLeg, RequireCacheLeg bool
	LegKey                      [32]byte
	// Asked, where given, is told of every leg that names its request, or is of a trace
	// that is sampled, before what it asks for begins. It must not block.
	Asked func(trust.Leg)
	// MaxConnections, MaxEngines and MaxClients bound who may be there at a time;
	// defaults 1024, 256 and 64. MaxRegions bounds what one engine lends, default
	// 1024; MaxOutstanding its offers and accepts that have not ended, default 4096.
	MaxConnections, MaxEngines, MaxClients, MaxRegions, MaxOutstanding int
	// MaxLentBytes bounds the memory that one engine lends; default twice what the
	// machine has, swap included.
	MaxLentBytes uint64
	// MaxBacklogBytes is how much may wait for an engine that does not read
	// before it is cut off; default 8 MiB, which is also the most: what waits
	// together becomes one frame.
	MaxBacklogBytes int
	// Handshake bounds the time to the end of Hello; default 5 seconds.
	Handshake time.Duration
	// FenceWait is how long an engine that comes back waits for the fence of
	// what it was before; default 10 seconds.
	FenceWait time.Duration
	Logger    *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Agent == nil || o.Transceiver == nil || o.Relay == nil || o.Socket == "" {
		return o, errors.New("doorserver: Options needs an Agent, a Transceiver, its Relay and a Socket")
	}
	o.AllowUIDs = slices.Clone(o.AllowUIDs)
	o.MaxConnections, o.MaxEngines = cmp.Or(o.MaxConnections, 1024), cmp.Or(o.MaxEngines, 256)
	o.MaxClients = cmp.Or(o.MaxClients, 64)
	o.MaxRegions, o.MaxOutstanding = cmp.Or(o.MaxRegions, 1024), cmp.Or(o.MaxOutstanding, 4096)
	o.MaxLentBytes = cmp.Or(o.MaxLentBytes, 2*machineBytes())
	o.MaxBacklogBytes = min(cmp.Or(o.MaxBacklogBytes, 8<<20), door.MaxFrameBytes/2)
	o.Handshake, o.FenceWait = cmp.Or(o.Handshake, 5*time.Second), cmp.Or(o.FenceWait, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// machineBytes is the memory of this machine, with its swap.
func machineBytes() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		panic(err) // the call takes nothing that could be wrong
	}
	return (info.Totalram + info.Totalswap) * uint64(info.Unit)
}

// Server is an open door.
type Server struct {
	options  Options
	self     kv.Member
	listener *net.UnixListener
	wait     sync.WaitGroup // everything that runs here
	life     context.Context
	endLife  context.CancelFunc

	decided, measured, refused, unread atomic.Uint64 // Steps, by what became of them

	mu         sync.Mutex // protects the rest; never held while the transceiver is asked for a step
	closing    bool
	conns      map[*conn]bool
	engines    map[string]*engine
	governed   map[string]*governedEngine
	nextDevice uint32
	lentBytes  uint64 // by all engines
	spent      spentLegs
	metrics    Metrics
}

// Metrics is a snapshot of what a door has seen.
type Metrics struct {
	// Connections, Engines and Serving are there now.
	Connections int `metric:"meridian_door_connections"`
	Engines     int `metric:"meridian_door_engines,gathering" less:"Serving"`
	Serving     int `metric:"meridian_door_engines,serving"`
	// Refused counts connections and requests that were refused, by the code
	// that was answered.
	Refused map[string]uint64 `metric:"meridian_door_refused_total"`
	// Fenced counts engines that were lost or left.
	Fenced uint64 `metric:"meridian_door_fenced_total"`
	// Governed counts schedulers that tell of their steps now, and Measuring connections
	// that send entropies. Running, Waiting and FreeBlocks are what the schedulers said last.
	Governed   int    `metric:"meridian_door_governed,scheduler"`
	Measuring  int    `metric:"meridian_door_governed,measures"`
	Running    uint64 `metric:"meridian_door_requests,running"`
	Waiting    uint64 `metric:"meridian_door_requests,waiting"`
	FreeBlocks uint64 `metric:"meridian_door_free_blocks"`
	// Steps that were decided and of which the engine was told; that told of what was
	// measured; that were refused, which are among Refused, too; and those whose Decision
	// the engine did not read. The last two end a connection.
	StepsDecided  uint64 `metric:"meridian_door_steps_total,decided"`
	StepsMeasured uint64 `metric:"meridian_door_steps_total,measured"`
	StepsRefused  uint64 `metric:"meridian_door_steps_total,refused"`
	StepsUnread   uint64 `metric:"meridian_door_steps_total,unread"`
}

// Open opens the door.
func Open(_ context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, self: kv.Member{Name: o.Agent.Name(), Incarnation: o.Agent.Incarnation()},
		conns: make(map[*conn]bool), engines: make(map[string]*engine), governed: make(map[string]*governedEngine), metrics: Metrics{Refused: make(map[string]uint64)},
	}
	if s.listener, err = listen(o.Socket, len(o.AllowUIDs) > 0); err != nil {
		return nil, err
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	o.Relay.attach(s)
	s.wait.Go(s.accept)
	return s, nil
}

// listen opens the socket, which others than this user may dial only if shared.
func listen(path string, shared bool) (*net.UnixListener, error) {
	// A socket that a killed agent left behind does not answer.
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("doorserver: an agent answers at %s already", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("doorserver: door: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("doorserver: door: %w", err)
	}
	mode := os.FileMode(0o600)
	if shared {
		mode = 0o666
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("doorserver: door: %w", err), listener.Close())
	}
	return listener, nil
}

// accept takes connections until the door is closed.
func (s *Server) accept() {
	for {
		socket, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.options.Logger.Warn("the engine door cannot take a connection", "error", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors, most likely
			continue
		}
		s.admit(door.NewConn(socket))
	}
}

// admit counts a connection and lets it speak.
func (s *Server) admit(wire *door.Conn) {
	c := newConn(s, wire)
	s.mu.Lock()
	full := len(s.conns) >= s.options.MaxConnections
	if s.closing || full {
		s.mu.Unlock()
		if full {
			s.refuse(c, busy(fmt.Sprintf("%d connections are open, which is the limit", s.options.MaxConnections)))
		}
		_ = wire.Close()
		return
	}
	s.conns[c] = true
	s.mu.Unlock()
	s.wait.Go(c.run)
}

// refuse answers a connection that does not come in.
func (s *Server) refuse(c *conn, p *door.Problem) {
	s.count(p)
	s.options.Logger.Warn("the engine door refuses a connection", "peer", c.peer.String(), "code", p.Code, "reason", p.Message)
	_ = c.wire.Socket().SetWriteDeadline(time.Now().Add(time.Second))
	_ = c.wire.Write(replyFrame(0, p), nil)
}

func (s *Server) count(p *door.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.Refused[p.Code]++
}

// Metrics returns a snapshot.
func (s *Server) Metrics() Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.metrics
	m.Refused = make(map[string]uint64, len(s.metrics.Refused))
	for code, n := range s.metrics.Refused {
		m.Refused[code] = n
	}
	m.Connections, m.Engines = len(s.conns), len(s.engines)
	for _, e := range s.engines {
		if e.state == serving {
			m.Serving++
		}
	}
	s.addGoverned(&m)
	return m
}

// Socket is the path of the door.
func (s *Server) Socket() string { return s.options.Socket }

// Close fences every engine, and returns when nothing of them is touched and
// everything has ended. It comes before the transceiver's Close. After an error it
// may be called again.
func (s *Server) Close(ctx context.Context) error {
	_ = s.listener.Close() // it removes the socket; a second time it says that it was closed
	s.mu.Lock()
	s.closing = true
	for _, e := range s.engines {
		s.fence(e, "the agent stops")
	}
	for c := range s.conns {
		switch {
		case c.engine != nil: // it ends with its engine
		case c.rank == client:
			c.end() // when nothing that it gave with a request is touched any more
		default:
			_ = c.wire.Close() // it has not come in, or is for steps, which touch no memory
		}
	}
	s.mu.Unlock()
	s.endLife()
	if err := join.Within(ctx, "doorserver: closing", s.wait.Wait); err != nil {
		return err
	}
	s.options.Relay.detach(s)
	return nil
}
