package transfer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"meridian/prove/bench"
)

// field is everybody in one measurement: Meridian once per variant, and the peers that are left.
type field struct {
	bench.Field[*ours, contender]
	report *Report
}

func newField(report *Report) *field {
	f := &field{report: report}
	f.Head = &report.Head
	return f
}

// openLimit bounds how long contenders take to start. A peer that was just
// installed has its Python compiled first.
const openLimit = 3 * time.Minute

func openField(ctx context.Context, o Options, kind fabricKind, report *Report) (_ *field, err error) {
	f := newField(report)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	if err := f.enter(ctx, o, kind, peersOf(o, kind), true); err != nil {
		return f, err
	}
	for _, v := range o.variants() {
		m, err := openOurs(ctx, o, kind, v)
		if err != nil {
			return f, err
		}
		f.Ours = append(f.Ours, m)
	}
	return f, nil
}

// enter starts those of some peers that are wanted beside a fabric, and notes who does
// something else. Peers that were named must be there, but where need is false.
func (f *field) enter(ctx context.Context, o Options, kind fabricKind, among []bench.Peer[contender], need bool) error {
	wanted, must := bench.Wanted(o.Peers, among)
	wanted = slices.DeleteFunc(wanted, func(p bench.Peer[contender]) bool {
		why := kind.unfit[p.Name]
		if why != "" {
			f.Head.Miss(bench.Absence{Peer: p.Name, Fabric: kind.name, Why: why})
		}
		return why != ""
	})
	return f.Enter(ctx, wanted, must && need, func(who *bench.Peer[contender], p contender) { f.join(p, who, kind) })
}

func (f *field) join(p contender, who *bench.Peer[contender], kind fabricKind) {
	p.rest()
	title := who.Title
	switch p := p.(type) {
	case *pythonPeer:
		title += " " + p.version
		if who.Name == "nixl" {
			title += " (UCX " + cmp.Or(kind.nixlTransport, "default") + ")"
		}
	case *iperf:
		title += " " + p.version
	}
	f.report.addVersion(title)
}
