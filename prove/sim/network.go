package sim

import "time"

// network says which host reaches which, on which rail. Nothing is lost on the
// way: a packet that cannot get through waits, as TCP would repeat it, until the
// way is open again or one side gives the connection up.
type network struct {
	hosts   int
	blocked []bool // by rail, from, to
	slow    []time.Duration
}

const mostRails = 2

func newNetwork(hosts int) network {
	return network{hosts: hosts, blocked: make([]bool, mostRails*hosts*hosts), slow: make([]time.Duration, hosts)}
}

func (n *network) way(rail int, from, to *host) *bool {
	return &n.blocked[(rail*n.hosts+from.index)*n.hosts+to.index]
}

// open reports whether packets get through, there and back.
func (n *network) open(rail int, x, y *host) bool { return !*n.way(rail, x, y) && !*n.way(rail, y, x) }

// packet is what travels on a pipe.
type packet struct {
	kind packetKind
	// bytes of a frame or of a piece of a payload
	bytes []byte
	// handle and length of a chunk
	handle, length uint32
	sum            uint64
}

type packetKind uint8

const (
	framePacket  packetKind = iota
	chunkPacket             // the header of a chunk: its pieces follow
	piecePacket             // some bytes of a payload
	sumPacket               // the end of a chunk: its checksum
	finishPacket            // the sender has closed
)

// pipe is one direction of a stream. What goes in comes out in order, sooner or
// later.
type pipe struct {
	from, to *stream
	packets  []packet
	last     time.Duration // when the last of them is due
	pace     time.Duration // what this pipe takes longer than others
	stalled  int           // deliveries that wait for the way to be open
	deliver  func()
}

func newPipe(from, to *stream) *pipe {
	p := &pipe{from: from, to: to}
	p.deliver = p.deliverFirst
	if w := from.world; w.swarm.faults[Reorder] {
		p.pace = between(w.road, 0, 20*w.swarm.latency)
		w.tally.Faults[Reorder]++
	}
	return p
}

// room reports whether the sender may send more payload.
func (p *pipe) room() bool { return len(p.packets) < p.from.world.swarm.window }

func (p *pipe) send(k packet) {
	w := p.from.world
	if p.from.connection.dead {
		return // into the void
	}
	delay := w.swarm.latency/8 + time.Duration(w.road.Int64N(int64(w.swarm.latency))) + p.pace
	delay += w.network.slow[p.from.process.host.index] + w.network.slow[p.to.process.host.index]
	if w.swarm.faults[Delay] && chance(w.road, 0.02) && !w.calm {
		delay += between(w.road, w.swarm.latency, 4*w.swarm.keepAlive)
		w.tally.Faults[Delay]++
	}
	p.last = max(p.last, w.now+delay)
	p.packets = append(p.packets, k)
	w.after(p.last-w.now, p.to.process, p.deliver)
}

func (p *pipe) deliverFirst() {
	w := p.from.world
	if len(p.packets) == 0 {
		return // dropped since
	}
	if *w.network.way(p.to.rail.number, p.from.process.host, p.to.process.host) {
		p.stalled++
		return
	}
	full := !p.room()
	k := p.packets[0]
	p.packets = p.packets[1:]
	if full && !p.from.closed {
		p.from.wake()
	}
	p.to.receive(k)
	if k.kind == framePacket && w.swarm.faults[Duplicate] && !w.calm && chance(w.road, 0.1) {
		w.tally.Faults[Duplicate]++
		w.note(p.to.process, nil, "hears the same frame again")
		p.to.receive(k)
	}
	w.countPacket()
}

// flow delivers what had stalled.
func (p *pipe) flow() {
	w := p.from.world
	for ; p.stalled > 0; p.stalled-- {
		p.last = max(p.last, w.now+w.swarm.latency)
		w.after(p.last-w.now, p.to.process, p.deliver)
	}
}

// drop loses what is on the way.
func (p *pipe) drop() { p.packets, p.stalled = nil, 0 }
