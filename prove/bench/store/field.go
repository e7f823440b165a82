package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/prove/bench"
)

// peerKind is one to be measured beside.
type peerKind struct {
	name string
	// missing says why it is not here, or nil.
	missing func(o Options) *bench.Absence
	open    opener
	// python is what apt must bring for it, if it is a Python package.
	python string
}

func here(Options) *bench.Absence { return nil }

// peers in the order of the report's columns.
var peers = []peerKind{
	{name: "memcpy", missing: here, open: openMemcpy},
	{name: "transfer", missing: here, open: openBare},
	{
		name: "mooncake", open: openMooncake, python: "libibverbs1 librdmacm1 libnuma1 libcurl4",
		missing: func(o Options) *bench.Absence { return bench.WithoutPython(o.PeersDir, "mooncake") },
	},
	{
		name: "redis", open: openRedis,
		missing: func(Options) *bench.Absence { return bench.WithoutProgram("redis", "redis-server") },
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

// field is everybody in one place.
type field struct {
	ours   contender
	peers  []contender
	report *Report
}

func openField(ctx context.Context, o Options, where string, ours opener, report *Report) (_ *field, err error) {
	f := &field{report: report}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	must := o.Peers[0] != "auto"
	for _, kind := range peers {
		if must && !slices.Contains(o.Peers, kind.name) {
			continue
		}
		p, absence := kind.start(ctx, o, where)
		switch {
		case ctx.Err() != nil:
			return f, ctx.Err()
		case absence == nil:
			f.peers = append(f.peers, p)
		case must:
			return f, fmt.Errorf("%w: %s", bench.ErrPeer, absence)
		default:
			report.Miss(*absence)
		}
	}
	f.ours, err = ours(ctx, o, where)
	return f, err
}

func (k peerKind) start(ctx context.Context, o Options, where string) (contender, *bench.Absence) {
	if absence := k.missing(o); absence != nil {
		return nil, absence
	}
	p, err := k.open(ctx, o, where)
	if err == nil {
		return p, nil
	}
	absence := absent(k.name, err)
	if k.python != "" {
		absence = bench.WhyNotPython(err, k.python)
		absence.Peer = k.name
	}
	return nil, absence
}

// drop gives up a peer that failed.
func (f *field) drop(p contender, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.Close(ctx) // it has failed already; what matters is that it is gone
	f.peers = slices.DeleteFunc(f.peers, func(other contender) bool { return other == p })
	f.report.Miss(*absent(p.name(), fmt.Errorf("it failed: %w", err)))
}

func (f *field) pids() (all []int) {
	all = append(all, f.ours.pids()...)
	for _, p := range f.peers {
		all = append(all, p.pids()...)
	}
	return all
}

func (f *field) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var err error
	if f.ours != nil {
		err = f.ours.Close(ctx)
	}
	for _, p := range f.peers {
		_ = p.Close(ctx) // a peer that does not stop in order is killed; the figures stand
	}
	return err
}
