package transfer

import (
	"context"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/file"
	"meridian/move/fabric/host"
	"meridian/move/fabric/inproc"
	"meridian/move/fabric/tcp"
)

// fabricOptions is what every fabric is opened with.
type fabricOptions struct {
	Agent       string
	Incarnation kv.ID
	Streams     int
	Checksums   bool
	Events      fabric.Events
	// Dir is for what the fabric puts into the file system.
	Dir string
	// Guard and TLS protect it, where given.
	Guard fabric.Guard
	TLS   *trust.Source
	// Metadata, where given, answers peers that fetch it.
	Metadata func() []byte
}

// ForAgents opens a fabric by name for agents that check grants, as in service.
// Dir is for what it puts into the file system.
func ForAgents(name, dir string) agent.Opener {
	return func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		return fabricByName(name).opener()(ctx, fabricOptions{
			Agent: self.Name, Incarnation: self.Incarnation, Streams: defaultStreams(), Checksums: true, Events: self.Events, Dir: dir,
			Guard: self.Guard, Metadata: self.Metadata,
		})
	}
}

// opener opens the fabric of one side. Two sides in one process share one.
type opener func(ctx context.Context, o fabricOptions) (fabric.Fabric, error)

// fabricKind is a fabric that can be measured.
type fabricKind struct {
	name string
	// opener makes the opener of one measurement.
	opener func() opener
	// oneProcess: the serving side is in this process. Such a fabric moves a
	// transfer with one worker, so that as many run at a time as there are
	// streams.
	oneProcess bool
	// onDisk: the serving side's pool is a file, which answers no peer.
	onDisk bool
	// streams: the number of streams matters.
	streams bool
	// protections are what can be measured with it, besides none.
	protections []string
	// unfit are the peers that do something else, and what.
	unfit map[string]string
	// nixlTransport is what UCX may use when NIXL is the rival; empty leaves
	// the choice to UCX.
	nixlTransport string
	// note tells readers of the report what they must know of it.
	note string
}

// fabrics lists what can be measured; a new fabric is a new row here.
var fabrics = []fabricKind{
	{name: "tcp", opener: func() opener { return openTCP }, streams: true, nixlTransport: "tcp", protections: []string{withGrants, withTLS}},
	{
		name: "host", opener: func() opener { return openHost }, protections: []string{withGrants},
		unfit: map[string]string{"mooncake": overTCP, "iperf3": overTCP},
	},
	{
		name: "inproc", opener: inOneNetwork, oneProcess: true, streams: true,
		unfit: map[string]string{"nixl": twoProcesses, "mooncake": twoProcesses, "iperf3": twoProcesses},
	},
	{
		name: "file", opener: inOneFabric, oneProcess: true, onDisk: true, streams: true,
		unfit: map[string]string{"nixl": fromMemory, "mooncake": fromMemory, "iperf3": fromMemory},
		note:  "past the page cache where the file system allows; a write is done when it is on the disk",
	},
}

// Why peers are left out.
const (
	overTCP      = "what is measured of it moves bytes over TCP, not through shared memory"
	twoProcesses = "what is measured of it moves bytes between two processes, not within one"
	fromMemory   = "what is measured of it moves bytes from memory to memory, not to a disk"
)

// FabricNames lists the fabrics that can be measured.
func FabricNames() []string {
	names := make([]string, len(fabrics))
	for i, kind := range fabrics {
		names[i] = kind.name
	}
	return names
}

func fabricByName(name string) fabricKind {
	for _, kind := range fabrics {
		if kind.name == name {
			return kind
		}
	}
	panic("bench: fabric " + name + " was not validated")
}

func openTCP(ctx context.Context, o fabricOptions) (fabric.Fabric, error) {
	return tcp.Open(ctx, tcp.Options{
		Agent: o.Agent, Incarnation: o.Incarnation, Listen: "127.0.0.1:0",
		Streams: o.Streams, NoChecksums: !o.Checksums, Events: o.Events, Guard: o.Guard, TLS: o.TLS,
		Metadata: o.Metadata,
	})
}

func openHost(ctx context.Context, o fabricOptions) (fabric.Fabric, error) {
	return host.Open(ctx, host.Options{
		Agent: o.Agent, Incarnation: o.Incarnation, Dir: o.Dir, NoChecksums: !o.Checksums, Events: o.Events, Guard: o.Guard,
	})
}

// inOneNetwork opens two fabrics that find each other.
func inOneNetwork() opener {
	network := inproc.NewNetwork()
	return func(ctx context.Context, o fabricOptions) (fabric.Fabric, error) {
		return inproc.Open(ctx, inproc.Options{
			Network: network, Agent: o.Agent, Incarnation: o.Incarnation, Workers: o.Streams,
			NoChecksums: !o.Checksums, Events: o.Events,
		})
	}
}

// inOneFabric opens one fabric for both sides: a file fabric reaches only its
// own agent. Each side closes it; once is enough and twice does no harm.
func inOneFabric() opener {
	var shared fabric.Fabric
	return func(ctx context.Context, o fabricOptions) (_ fabric.Fabric, err error) {
		if shared == nil {
			shared, err = file.Open(ctx, file.Options{
				Agent: o.Agent, Incarnation: o.Incarnation, Workers: o.Streams, NoChecksums: !o.Checksums, Events: o.Events,
			})
		}
		return shared, err
	}
}
