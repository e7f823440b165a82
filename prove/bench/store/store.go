// Package store measures the object cache: puts and gets of whole objects, beside
// others that keep objects and beside what a machine allows.
//
//	          ┌ ours ─────── this process asks; the owner's is the command itself, again
//	          ├ memcpy ───── this process, a thread for each client
//	rounds ─► ├ transfer ─── a plain transfer of as many bytes, with as many in flight
//	          ├ mooncake ─── a master, one process that keeps and one that asks
//	          └ redis ────── redis-server; this process asks
//
// A row is one operation, size of objects, number of clients and place. Everybody
// in turn does the row's operations once, then everybody again, round by round, so
// that a machine that slows down slows all of them down; ratios are of one round
// each. Every object has memory of its own on the side that asks, and contents of
// its own, which are compared after the last round.
package store

import (
	"context"
	"fmt"
	"time"

	"meridian/prove/bench"
)

// Options says what to measure.
type Options struct {
	Objects []bench.Size
	// Ops are "put" and "get".
	Ops []string
	// Clients is how many ask at a time.
	Clients []int
	// Where is who can reach the owner how; see Places.
	Where []string
	// Total is the most bytes that one round moves.
	Total  bench.Size
	Rounds int
	// Peers by name, or "auto" for all that are installed, or "none".
	Peers    []string
	PeersDir string
	// Dir is where sockets are made for the time of a run; empty means the
	// system's directory for such things.
	Dir string
	// ServeCommand runs transfer.Serve, OwnCommand Own, with their standard
	// input and output.
	ServeCommand, OwnCommand []string
	bench.Setting
}

// Places are where clients can be: on the owner's host, with memory to share, or
// elsewhere, with a network between.
func Places() []string { return []string{sameHost, overTCP} }

const (
	sameHost = "same-host"
	overTCP  = "tcp"
)

// fabricOf names the fabric of a place.
func fabricOf(where string) string {
	if where == sameHost {
		return "host"
	}
	return "tcp"
}

const (
	maxClients = 256
	// mostOperations of a round: small objects are counted by this, not by
	// their bytes.
	mostOperations = 4096
	// roundLimit bounds one round of one contender, so that one that hangs is
	// given up instead of waited for.
	roundLimit = 2 * time.Minute
	openLimit  = 3 * time.Minute
	closeLimit = 10 * time.Second
)

func (o *Options) validate() error {
	if o.Rounds < 1 || o.Rounds > 1000 {
		return fmt.Errorf("%w: %d rounds; 1 to 1000", bench.ErrOptions, o.Rounds)
	}
	if err := bench.Known("operation", o.Ops, []string{put, get}); err != nil {
		return err
	}
	if err := bench.Known("place", o.Where, Places()); err != nil {
		return err
	}
	if len(o.Objects) == 0 || len(o.Clients) == 0 {
		return fmt.Errorf("%w: nothing to measure: say --object and --clients", bench.ErrOptions)
	}
	for _, object := range o.Objects {
		if object.Bytes%wordBytes != 0 || object.Bytes > o.Total.Bytes {
			return fmt.Errorf("%w: objects of %s in rounds of %s; an object is a multiple of %d bytes and no larger than a round",
				bench.ErrOptions, object, o.Total, wordBytes)
		}
	}
	for _, clients := range o.Clients {
		if clients < 1 || clients > maxClients {
			return fmt.Errorf("%w: %d clients; 1 to %d", bench.ErrOptions, clients, maxClients)
		}
	}
	return o.validatePeers()
}

func (o *Options) validatePeers() error {
	if len(o.Peers) == 1 && (o.Peers[0] == "auto" || o.Peers[0] == "none") {
		return nil
	}
	return bench.Known("peer", o.Peers, PeerNames())
}

// cases of one place, with the sizes as they were typed.
func (o *Options) cases() (all []Case, objects []bench.Size) {
	for _, op := range o.Ops {
		for _, object := range o.Objects {
			for _, clients := range o.Clients {
				count := min(o.Total.Bytes/object.Bytes, mostOperations)
				count = max(count, uint64(clients)) // each has something to do
				all = append(all, Case{Op: op, Object: object.Bytes, Clients: clients, Count: int(count)})
				objects = append(objects, object)
			}
		}
	}
	return all, objects
}

// mostBytes is what the largest row moves.
func (o *Options) mostBytes() (most uint64) {
	all, _ := o.cases()
	for _, c := range all {
		most = max(most, c.bytes())
	}
	return most
}

// opener starts what is measured, for one place.
type opener func(ctx context.Context, o Options, where string) (contender, error)

// Run measures. The report is complete or there is an error; a peer that fails on
// the way is left out from there on, and the report says why.
func Run(ctx context.Context, o Options) (*Report, error) { return run(ctx, o, openOurs) }

func run(ctx context.Context, o Options, ours opener) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	report := newReport(o)
	meter := bench.StartMeter(nil)
	for _, where := range o.Where {
		if err := measure(ctx, o, where, ours, report); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	report.Others = meter.Others()
	return report, nil
}
