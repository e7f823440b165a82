package bench

import (
	"context"

	"meridian/fabric"
	"meridian/fabric/tcp"
	"meridian/mrdn"
)

// fabricOptions is what every fabric is opened with.
type fabricOptions struct {
	Agent       string
	Incarnation mrdn.ID
	Streams     int
	Checksums   bool
	Events      fabric.Events
}

// fabricKind is a fabric that can be measured.
type fabricKind struct {
	name string
	open func(ctx context.Context, o fabricOptions) (fabric.Fabric, error)
	// rivals are the peers that do the same: what "auto" stands for.
	rivals []string
	// nixlTransport is what UCX may use when NIXL is the rival; empty leaves
	// the choice to UCX.
	nixlTransport string
}

// fabrics lists what can be measured; a new fabric is a new row here.
var fabrics = []fabricKind{
	{name: "tcp", open: openTCP, rivals: []string{"nixl", "mooncake", "iperf3", "memcpy"}, nixlTransport: "tcp"},
}

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
		Streams: o.Streams, NoChecksums: !o.Checksums, Events: o.Events,
	})
}
