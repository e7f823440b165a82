package store

import (
	"context"
	"errors"

	"meridian/prove/bench"
)

// peersOf are the peers in one place, in the order of the report's columns.
func peersOf(o Options, where string) []bench.Peer[contender] {
	by := func(open opener) func(context.Context) (contender, error) {
		return func(ctx context.Context) (contender, error) { return open(ctx, o, where) }
	}
	return []bench.Peer[contender]{
		{Name: "memcpy", Open: by(openMemcpy)},
		{Name: "transfer", Open: by(openBare)},
		{
			Name: "mooncake", Open: by(openMooncake), Packages: "libibverbs1 librdmacm1 libnuma1 libcurl4",
			Missing: func() *bench.Absence { return bench.WithoutPython(o.PeersDir, "mooncake") },
		},
		{
			Name: "redis", Open: by(openRedis),
			Missing: func() *bench.Absence { return bench.WithoutProgram("redis", "redis-server") },
		},
	}
}

// PeerNames lists who can be measured beside Meridian.
func PeerNames() []string { return bench.PeerNames(peersOf(Options{}, "")) }

// field is everybody in one place.
type field = bench.Field[contender, contender]

func openField(ctx context.Context, o Options, where string, ours opener, report *Report) (_ *field, err error) {
	f := &field{Head: &report.Head}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	wanted, must := bench.Wanted(o.Peers, peersOf(o, where))
	if err := f.Enter(ctx, wanted, must, func(*bench.Peer[contender], contender) {}); err != nil {
		return f, err
	}
	m, err := ours(ctx, o, where)
	if err == nil {
		f.Ours = append(f.Ours, m)
	}
	return f, err
}
