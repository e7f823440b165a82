package transfer

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"meridian/prove/bench"
)

// peerKind is a library to be measured beside.
type peerKind struct {
	name string
	// title says in the report what exactly is measured.
	title string
	// missing says why it is not here, or nil.
	missing func(o Options) *bench.Absence
	open    func(ctx context.Context, kind peerKind, o Options, f fabricKind) (contender, error)
	// packages are what apt must bring for it.
	packages string
}

// peers in the order of the report's columns.
var peers = []peerKind{
	{
		name: "nixl", title: "NIXL", missing: func(o Options) *bench.Absence { return bench.WithoutPython(o.PeersDir, "nixl") }, open: openNIXL, packages: "libnuma1",
	},
	{
		name: "mooncake", title: "Mooncake (tcp)", missing: func(o Options) *bench.Absence { return bench.WithoutPython(o.PeersDir, "mooncake") }, open: openMooncake,
		packages: "libibverbs1 librdmacm1 libnuma1 libcurl4",
	},
	{
		name: "iperf3", title: "iperf3", missing: func(Options) *bench.Absence { return bench.WithoutProgram("iperf3", "iperf3") }, open: openIperf, packages: "iperf3",
	},
	{
		name: "memcpy", title: "memcpy (Go, every core)", missing: func(Options) *bench.Absence { return nil },
		open: func(ctx context.Context, _ peerKind, o Options, _ fabricKind) (contender, error) {
			return openMemcpy(ctx, o)
		},
	},
}

// PeerNames lists who can be measured beside Meridian.
func PeerNames() []string {
	names := make([]string, len(peers))
	for i, kind := range peers {
		names[i] = kind.name
	}
	return names
}

func (o *Options) validatePeers() error {
	if len(o.Peers) == 1 && (o.Peers[0] == "auto" || o.Peers[0] == "none") {
		return nil
	}
	for _, name := range o.Peers {
		if !slices.Contains(PeerNames(), name) {
			return fmt.Errorf("%w: no peer %q; say auto, none, or some of %s", bench.ErrOptions, name, bench.Names(PeerNames()))
		}
	}
	return bench.Known("peer", o.Peers, PeerNames())
}

func openNIXL(ctx context.Context, kind peerKind, o Options, f fabricKind) (contender, error) {
	return openNIXLWith(ctx, kind, o, f, true)
}

func openNIXLWith(ctx context.Context, kind peerKind, o Options, f fabricKind, servingThread bool) (*pythonPeer, error) {
	// "all" is UCX's default; said, so that no setting of the user's
	// comes between.
	environment := []string{"NIXL_LOG_LEVEL=ERROR", "UCX_LOG_LEVEL=error", "UCX_TLS=" + cmp.Or(f.nixlTransport, "all")}
	if f.nixlTransport != "" {
		environment = append(environment, "UCX_NET_DEVICES=lo")
	}
	return openPython(ctx, kind, pythonOptions{
		python: bench.Interpreter(o.PeersDir, kind.name), environment: environment, poolBytes: poolBytes(o.Total.Bytes), servingThread: servingThread,
	})
}

func openMooncake(ctx context.Context, kind peerKind, o Options, _ fabricKind) (contender, error) {
	return openPython(ctx, kind, pythonOptions{
		python: bench.Interpreter(o.PeersDir, kind.name), poolBytes: poolBytes(o.Total.Bytes),
		environment: []string{
			"MC_FORCE_TCP=1", "MC_LOG_LEVEL=ERROR", "GLOG_minloglevel=2",
			// Room for the largest batch that is posted; see mooncake_peer.py.
			"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER=65535", "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER=65535",
			"MC_TCP_ADMISSION_TIMEOUT_MS=60000",
		},
	})
}
