package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"meridian/prove/bench"
)

// heat is one row in the making.
type heat struct {
	field    *field
	row      int
	c        Case
	rounds   int
	progress func(round int, who string)
	laps     map[string][]Lap
}

// measure measures every row of one place.
func measure(ctx context.Context, o Options, where string, ours opener, report *Report) (err error) {
	o.Tell(bench.Progress{What: "starting everybody: " + where})
	f, err := openField(ctx, o, where, ours, report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	cases, objects := o.cases()
	for i, c := range cases {
		what := fmt.Sprintf("%s %s %s, clients: %d", where, c.Op, objects[i], c.Clients)
		h := newHeat(f, o, bench.Progress{Row: i + 1, Rows: len(cases), What: what}, i, c)
		meter := bench.StartMeter(f.PIDs())
		if err := h.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		report.Rows = append(report.Rows, newRow(c, where, objects[i], h.laps, meter.Others()))
	}
	return nil
}

func newHeat(f *field, o Options, at bench.Progress, row int, c Case) *heat {
	progress := func(round int, who string) {
		at.Round, at.Rounds, at.Who = round, o.Rounds, who
		o.Tell(at)
	}
	return &heat{field: f, row: row, c: c, rounds: o.Rounds, laps: make(map[string][]Lap), progress: progress}
}

// run warms everybody up, lets them work in turn, and compares what they did.
func (h *heat) run(ctx context.Context) error {
	last := h.rounds + 1
	for round := range last + 1 {
		step := func(ctx context.Context, who contender) error {
			switch round {
			case 0:
				return h.warm(ctx, who)
			case last:
				return errors.Join(who.verify(ctx), who.unload(ctx))
			}
			lap, err := who.round(ctx, round)
			h.laps[who.Name()] = append(h.laps[who.Name()], lap)
			return err
		}
		if err := h.everybody(ctx, round, step); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// warm loads the row and runs it once, so that memory is mapped and connections
// are open.
func (h *heat) warm(ctx context.Context, who contender) error {
	if err := who.load(ctx, h.row, h.c); err != nil {
		return err
	}
	_, err := who.round(ctx, 0)
	return err
}

// everybody gives each a turn; a peer that fails is dropped.
func (h *heat) everybody(ctx context.Context, round int, do func(context.Context, contender) error) error {
	ours := h.field.Ours[0]
	for _, who := range append([]contender{ours}, slices.Clone(h.field.Peers)...) {
		h.progress(min(round, h.rounds), who.Name())
		err := turn(ctx, func(ctx context.Context) error { return do(ctx, who) })
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && who == ours:
			return err
		case err != nil:
			delete(h.laps, who.Name())
			h.field.Drop(who, err)
		}
	}
	return nil
}
