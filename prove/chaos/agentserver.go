package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"sync"
	"time"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/directory/etcd"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/tcp"
	"meridian/move/mem"
)

// Setup says what a puppet is made of.
type Setup struct {
	Name string
	// StateDir holds the cell's key; puppets that talk to each other share it.
	StateDir string
	// Listen is where it listens; default any port of loopback. Advertise,
	// where given, is what peers are told instead: the address of a proxy.
	Listen, Advertise string
	// Directory is the endpoint of a directory; empty means none.
	Directory string
	// ArenaBytes is the size of its memory, filled with words of Seed; default
	// 32 MiB.
	ArenaBytes, Seed uint64
	Streams          int
	// KeepAlive and Handshake: see tcp.Options.
	KeepAlive, Handshake time.Duration
}

// setup is where the environment holds a Setup.
const setup = "MERIDIAN_CHAOS_SETUP"

// serverName is what the calls of an agentServer begin with.
const serverName = "Agent"

// agentServer is the inside of an agent's process; its methods are the calls.
type agentServer struct {
	agent     *agent.Agent
	directory directory.Directory
	arena     *mem.Arena
	region    agent.RegionInfo
	fabric    *tcp.Fabric
	disk      disk

	mu        sync.Mutex // protects the rest
	peers     map[string]*agent.Peer
	transfers map[kv.ID]*agent.Transfer
}

// play opens an agent and carries out calls until the input ends, which is how the process
// is told to leave.
func play() error {
	var s Setup
	if err := json.Unmarshal([]byte(os.Getenv(setup)), &s); err != nil {
		return fmt.Errorf("chaos: %s: %w", setup, err)
	}
	p, err := open(context.Background(), s)
	if err != nil {
		return err
	}
	orders := rpc.NewServer()
	if err := orders.RegisterName(serverName, p); err != nil {
		return err
	}
	orders.ServeCodec(jsonrpc.NewServerCodec(struct {
		io.Reader
		io.Writer
		io.Closer
	}{os.Stdin, os.Stdout, os.Stdin}))
	return p.leave()
}

// advertised is a fabric that tells peers to come by another way.
type advertised struct {
	*tcp.Fabric
	address []byte
}

func (a advertised) Address() []byte { return a.address }

func open(ctx context.Context, s Setup) (p *agentServer, err error) {
	p = &agentServer{peers: make(map[string]*agent.Peer), transfers: make(map[kv.ID]*agent.Transfer)}
	key, err := trust.OpenCellKey(s.StateDir)
	if err != nil {
		return nil, err
	}
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	if s.Directory != "" {
		if p.directory, err = etcd.Open(ctx, etcd.Options{Endpoints: []string{s.Directory}}); err != nil {
			return nil, err
		}
	}
	overTCP := func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		f, err := tcp.Open(ctx, tcp.Options{
			Agent: self.Name, Incarnation: self.Incarnation, Listen: s.Listen, Streams: s.Streams, Key: &key,
			KeepAlive: s.KeepAlive, Handshake: s.Handshake, Guard: self.Guard, Events: self.Events, Metadata: self.Metadata,
		})
		if p.fabric = f; err == nil && s.Advertise != "" {
			return advertised{f, []byte(s.Advertise)}, nil
		}
		return f, err
	}
	p.agent, err = agent.Open(ctx, agent.Options{Name: s.Name, Fabrics: []agent.Opener{overTCP}, Directory: p.directory})
	if err != nil {
		return nil, err
	}
	if s.ArenaBytes == 0 {
		s.ArenaBytes = 32 << 20
	}
	if p.arena, err = mem.NewArena(mem.ArenaOptions{Name: s.Name, SizeBytes: s.ArenaBytes, NUMANode: -1}); err != nil {
		return nil, err
	}
	fill(p.arena.Bytes(0, p.arena.Size()), 0, s.Seed)
	p.region, err = p.agent.Register(p.arena.Section, "kv")
	return p, err
}

// leave proves that nothing is left: no goroutine to wait for, no reference.
func (p *agentServer) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	errs := []error{p.disk.close(ctx), p.agent.Close(ctx)}
	if p.directory != nil {
		errs = append(errs, p.directory.Close(ctx))
	}
	if n := p.arena.References(); n != 0 {
		errs = append(errs, fmt.Errorf("chaos: %d references to the arena are left", n))
	}
	return errors.Join(append(errs, p.arena.Close(ctx))...)
}

// None is the argument or the reply of an order that has none.
type None struct{}

// Answer is the reply of an order that may be refused.
type Answer struct{ Err *Failure }

// Report is who a puppet is.
type Report struct {
	Address     string
	Incarnation kv.ID
	Blob        []byte
	Region      uint64
	Metrics     agent.Metrics
}

// Report tells who this is and what it has done.
func (p *agentServer) Report(_ None, r *Report) error {
	*r = Report{
		Address: string(p.fabric.Address()), Incarnation: p.agent.Incarnation(), Blob: p.agent.MetadataBlob(),
		Region: p.region.ID, Metrics: p.agent.Metrics(),
	}
	return nil
}

// Load learns of a peer from its blob.
func (p *agentServer) Load(blob []byte, _ *None) error {
	peer, err := p.agent.LoadMetadata(blob)
	return p.meet(peer, err)
}

func (p *agentServer) meet(peer *agent.Peer, err error) error {
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers[peer.Name] = peer
	return nil
}

// Find learns of a peer from the directory.
func (p *agentServer) Find(name string, _ *None) error {
	peer, err := p.agent.Find(context.Background(), name)
	return p.meet(peer, err)
}

// Opening is what a puppet opens to a peer.
type Opening struct {
	Peer           string
	Op             fabric.Op
	Offset, Length uint64
}

// Grant opens memory to a peer.
func (p *agentServer) Grant(o Opening, id *kv.ID) error {
	list, err := p.agent.Local([]agent.Descriptor{p.descriptor(p.region, o.Offset, o.Length)})
	if err == nil {
		*id, err = p.agent.Grant(agent.GrantOptions{Peer: o.Peer, Op: o.Op, Side: agent.Side{List: list}, For: time.Hour})
	}
	return err
}

func (p *agentServer) descriptor(r agent.RegionInfo, offset, length uint64) agent.Descriptor {
	return agent.Descriptor{Address: r.Address + offset, Length: length, Device: r.Device}
}

// Stretch is some of a puppet's memory.
type Stretch struct {
	Offset, Length, Seed uint64
	Seeds                []uint64
}

// Fill overwrites memory with the words of Seed.
func (p *agentServer) Fill(s Stretch, _ *None) error {
	fill(p.arena.Bytes(s.Offset, s.Length), s.Offset, s.Seed)
	return nil
}

// Count takes a census for Seeds.
func (p *agentServer) Count(s Stretch, c *WordCount) error {
	*c = count(p.arena.Bytes(s.Offset, s.Length), s.Offset, s.Seeds)
	return nil
}

// Fence fences the arena: what runs in it ends, and old names are refused.
func (p *agentServer) Fence(_ None, a *Answer) error {
	_, err := p.agent.Fence(context.Background(), p.region.ID)
	a.Err = failure(err)
	return nil
}

// References counts who holds the arena.
func (p *agentServer) References(_ None, n *int) error {
	*n = p.arena.References()
	return nil
}

// Notifications takes what has arrived.
func (p *agentServer) Notifications(_ None, all *[]string) error {
	for {
		select {
		case n := <-p.agent.Notifications():
			*all = append(*all, string(n.Payload))
		default:
			return nil
		}
	}
}

// Arena makes an arena, registers it, and gives both back.
func (p *agentServer) Arena(size uint64, a *Answer) error {
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "large", SizeBytes: size, NUMANode: -1})
	if err == nil {
		var region agent.RegionInfo
		if region, err = p.agent.Register(arena.Section, "large"); err == nil {
			err = p.agent.Deregister(context.Background(), region.ID)
		}
		err = errors.Join(err, arena.Close(context.Background()))
	}
	a.Err = failure(err)
	return nil
}
