package transfer

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"meridian/prove/bench"
)

// peersOf are the peers beside a fabric, in the order of the report's columns.
func peersOf(o Options, f fabricKind) []bench.Peer[contender] {
	return []bench.Peer[contender]{
		nixlPeer(o, f, true),
		{
			Name: "mooncake", Title: "Mooncake (tcp)", Packages: "libibverbs1 librdmacm1 libnuma1 libcurl4",
			Missing: func() *bench.Absence { return bench.WithoutPython(o.PeersDir, "mooncake") },
			Open:    func(ctx context.Context) (contender, error) { return openMooncake(ctx, o) },
		},
		{
			Name: "iperf3", Title: "iperf3", Packages: "iperf3",
			Missing: func() *bench.Absence { return bench.WithoutProgram("iperf3", "iperf3") },
			Open:    func(ctx context.Context) (contender, error) { return openIperf(ctx, o) },
		},
		{Name: "memcpy", Title: "memcpy (Go, every core)", Open: func(ctx context.Context) (contender, error) { return openMemcpy(ctx, o) }},
	}
}

// nixlPeer is NIXL, whose serving side may have a thread that makes progress.
func nixlPeer(o Options, f fabricKind, servingThread bool) bench.Peer[contender] {
	return bench.Peer[contender]{
		Name: "nixl", Title: "NIXL", Packages: "libnuma1",
		Missing: func() *bench.Absence { return bench.WithoutPython(o.PeersDir, "nixl") },
		Open:    func(ctx context.Context) (contender, error) { return openNIXL(ctx, o, f, servingThread) },
	}
}

// PeerNames lists who can be measured beside Meridian.
func PeerNames() []string { return bench.PeerNames(peersOf(Options{}, fabricKind{})) }

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

func openNIXL(ctx context.Context, o Options, f fabricKind, servingThread bool) (*pythonPeer, error) {
	// "all" is UCX's default; said, so that no setting of the user's
	// comes between.
	environment := []string{"NIXL_LOG_LEVEL=ERROR", "UCX_LOG_LEVEL=error", "UCX_TLS=" + cmp.Or(f.nixlTransport, "all")}
	if f.nixlTransport != "" {
		environment = append(environment, "UCX_NET_DEVICES=lo")
	}
	return openPython(ctx, "nixl", pythonOptions{
		python: bench.Interpreter(o.PeersDir, "nixl"), environment: environment, poolBytes: poolBytes(o.Total.Bytes), servingThread: servingThread,
	})
}

func openMooncake(ctx context.Context, o Options) (*pythonPeer, error) {
	return openPython(ctx, "mooncake", pythonOptions{
		python: bench.Interpreter(o.PeersDir, "mooncake"), poolBytes: poolBytes(o.Total.Bytes),
		environment: []string{
			"MC_FORCE_TCP=1", "MC_LOG_LEVEL=ERROR", "GLOG_minloglevel=2",
			// Room for the largest batch that is posted; see mooncake_peer.py.
			"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER=65535", "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER=65535",
			"MC_TCP_ADMISSION_TIMEOUT_MS=60000",
		},
	})
}
