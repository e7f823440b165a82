package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/prove/bench"
)

// field is everybody in one measurement: Meridian once per variant, and the peers that are left.
type field struct {
	ours   []*ours
	peers  []contender
	report *Report
}

// openLimit bounds how long contenders take to start. A peer that was just
// installed has its Python compiled first.
const openLimit = 3 * time.Minute

func openField(ctx context.Context, o Options, kind fabricKind, report *Report) (_ *field, err error) {
	f := &field{report: report}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	if err := f.openPeers(ctx, o, kind); err != nil {
		return f, err
	}
	for _, v := range o.variants() {
		m, err := openOurs(ctx, o, kind, v)
		if err != nil {
			return f, err
		}
		f.ours = append(f.ours, m)
	}
	return f, nil
}

// wanted picks from some peers those to measure beside a fabric, and whether
// they must be there: those named must; with auto what is there will do, and who
// does something else is noted.
func (f *field) wanted(o Options, kind fabricKind, among []string) (names []string, must bool) {
	must = o.Peers[0] != "auto"
	for _, name := range among {
		switch why := kind.unfit[name]; {
		case must && !slices.Contains(o.Peers, name):
		case why != "":
			f.report.Miss(bench.Absence{Peer: name, Fabric: kind.name, Why: why})
		default:
			names = append(names, name)
		}
	}
	return names, must
}

// openPeers starts who is wanted and there, and notes who is not.
func (f *field) openPeers(ctx context.Context, o Options, kind fabricKind) error {
	names, must := f.wanted(o, kind, PeerNames())
	for _, name := range names {
		who := peerByName(name)
		absence := who.missing(o)
		if absence == nil {
			p, err := who.open(ctx, who, o, kind)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				f.join(p, who, kind)
				continue
			}
			absence = bench.WhyNotPython(err, who.packages)
		}
		absence.Peer = name
		if must {
			return fmt.Errorf("%w: %s", bench.ErrPeer, absence)
		}
		f.report.Miss(*absence)
	}
	return nil
}

func peerByName(name string) peerKind {
	for _, kind := range peers {
		if kind.name == name {
			return kind
		}
	}
	panic("bench: peer " + name + " was not validated")
}

func (f *field) join(p contender, who peerKind, kind fabricKind) {
	p.rest()
	f.peers = append(f.peers, p)
	title := who.title
	switch p := p.(type) {
	case *pythonPeer:
		title += " " + p.version
		if who.name == "nixl" {
			title += " (UCX " + cmp.Or(kind.nixlTransport, "default") + ")"
		}
	case *iperf:
		title += " " + p.version
	}
	f.report.addVersion(title)
}

// drop gives up a peer that failed.
func (f *field) drop(p contender, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.Close(ctx) // it has failed already; what matters is that it is gone
	for i := range f.peers {
		if f.peers[i] == p {
			f.peers = append(f.peers[:i], f.peers[i+1:]...)
			break
		}
	}
	f.report.Miss(bench.Absence{Peer: p.name(), Why: "it failed: " + err.Error()})
}

func (f *field) pids() (all []int) {
	for _, m := range f.ours {
		all = append(all, m.pids()...)
	}
	for _, p := range f.peers {
		all = append(all, p.pids()...)
	}
	return all
}

func (f *field) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var errs []error
	for _, m := range f.ours {
		errs = append(errs, m.Close(ctx))
	}
	for _, p := range f.peers {
		p.wake()
		_ = p.Close(ctx) // a peer that does not stop in order is killed; the figures stand
	}
	return errors.Join(errs...)
}
