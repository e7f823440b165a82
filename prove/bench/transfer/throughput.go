package transfer

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
	c        Case
	rounds   int
	progress func(round int, who string)
	scores   map[contender][]float64
	pinned   map[contender]bool
}

func measureThroughput(ctx context.Context, o Options, fabricName string, report *Report) (err error) {
	f, err := openField(ctx, o, fabricByName(fabricName), report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	cases, blocks := o.cases()
	for i, c := range cases {
		what := fmt.Sprintf("%s %s %s %s", fabricName, c.Op, blocks[i], c.Layout)
		h := &heat{
			field: f, c: c, rounds: o.Rounds, scores: make(map[contender][]float64), pinned: make(map[contender]bool),
			progress: func(round int, who string) {
				o.Tell(bench.Progress{Row: i + 1, Rows: len(cases), What: what, Round: round, Rounds: o.Rounds, Who: who})
			},
		}
		meter := bench.StartMeter(f.PIDs())
		if err := h.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		h.report(report, fabricName, blocks[i], meter.Others())
	}
	return nil
}

// run warms everybody up and lets them move the row's bytes in turn.
func (h *heat) run(ctx context.Context) error {
	for _, m := range h.field.Ours {
		h.progress(0, m.Name())
		if err := h.turn(ctx, m, func(ctx context.Context) error { return h.warm(ctx, m) }); err != nil {
			return err
		}
	}
	h.eachPeer(ctx, 0, h.choose)
	for round := 1; round <= h.rounds; round++ {
		for _, m := range h.field.Ours {
			h.progress(round, m.Name())
			if err := h.turn(ctx, m, func(ctx context.Context) error { return h.score(ctx, m, round) }); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		h.eachPeer(ctx, round, func(ctx context.Context, p contender) error { return h.score(ctx, p, round) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// turn bounds what one does while the others rest.
func (h *heat) turn(ctx context.Context, who contender, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	who.wake()
	defer who.rest()
	return do(ctx)
}

// eachPeer gives every peer its turn; one that fails is dropped.
func (h *heat) eachPeer(ctx context.Context, round int, do func(context.Context, contender) error) {
	for _, p := range slices.Clone(h.field.Peers) {
		if ctx.Err() != nil {
			return
		}
		h.progress(round, p.Name())
		err := h.turn(ctx, p, func(ctx context.Context) error { return do(ctx, p) })
		if err != nil && ctx.Err() == nil {
			delete(h.scores, p)
			h.field.Drop(p, err)
		}
	}
}

// warm loads the row and runs it once, so that memory is mapped and
// connections are open.
func (h *heat) warm(ctx context.Context, who contender) error {
	if err := who.load(ctx, h.c); err != nil {
		return err
	}
	_, err := who.round(ctx, false)
	return err
}

// trials is how often each placement is tried when one is chosen.
const trials = 2

// choose warms a peer up and finds out whether it likes to be pinned.
func (h *heat) choose(ctx context.Context, p contender) error {
	if err := h.warm(ctx, p); err != nil {
		return err
	}
	best := 0.0
	for _, pinned := range []bool{false, true} {
		for range trials {
			got, err := p.round(ctx, pinned)
			if err != nil {
				return err
			}
			if got > best {
				best, h.pinned[p] = got, pinned
			}
		}
	}
	return nil
}

// score runs one round that counts. The last one starts with an empty
// destination and must leave a full one.
func (h *heat) score(ctx context.Context, who contender, round int) error {
	last := round == h.rounds
	if last {
		if err := who.clear(ctx); err != nil {
			return err
		}
	}
	got, err := who.round(ctx, h.pinned[who])
	if err != nil {
		return err
	}
	h.scores[who] = append(h.scores[who], got)
	if last {
		return who.verify(ctx)
	}
	return nil
}

func (h *heat) report(r *Report, fabricName string, block bench.Size, others float64) {
	beside := make(map[string]bench.Figure)
	for _, p := range h.field.Peers {
		if scores := h.scores[p]; len(scores) == h.rounds {
			beside[p.Name()] = bench.NewFigure(scores)
		}
	}
	for _, m := range h.field.Ours {
		row := Row{
			Fabric: fabricName, Op: h.c.Op, Block: block.Text, Layout: h.c.Layout, Checksum: m.checksum, Protect: m.protect,
			Figure: bench.NewFigure(h.scores[m]), beside: beside, others: others,
		}
		row.Ratio = row.ratios()
		r.Rows = append(r.Rows, row)
	}
}
