package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"meridian/prove/bench"
)

// RunObserved measures what it costs to be watched: hand-offs between the agents of a
// cell, with the page open and one hand-off in a hundred traced, and with neither,
// round by round in turn. Everything that makes what is shown is what runs in service:
// agents with their records, questions among agents, the gateway that asks them, the
// page's events read over HTTP, spans sent to a collector. Each round goes on for
// o.Round; the page is told something new every second.
func RunObserved(ctx context.Context, o HandOffOptions) (*ObservedReport, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Round < minRound {
		return nil, fmt.Errorf("%w: rounds of %v; at least %v, as the page is told something new every second", bench.ErrOptions, o.Round, minRound)
	}
	errands, err := o.errands()
	if err != nil {
		return nil, err
	}
	o.fill()
	report := &ObservedReport{Head: bench.NewHead(o.Version), Rows: []ObservedRow{}, options: o}
	if report.Scrape, err = measureScrape(ctx); err != nil {
		return nil, err
	}
	err = o.each(errands, ", watched", func(name string, k int, progress func(int, string)) error {
		row, err := observe(ctx, o, name, errands[k], progress)
		if err == nil {
			report.Rows = append(report.Rows, row)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return report, nil
}

const minRound = time.Second

// theatre is a cell with two engines, and who watches it.
type theatre struct {
	bench.Opened
	relay          *relay
	rest, audience *bench.Process
	admin          string // the gateway's, where the page is
}

func openTheatre(ctx context.Context, o HandOffOptions, kind fabricKind, e Errand) (_ *theatre, err error) {
	t := &theatre{}
	defer t.Unless(ctx, &err)
	dir, err := t.Folder(o.Dir)
	if err != nil {
		return t, err
	}
	// Spans are sent until the end: the audience is the last to leave.
	if t.audience, err = t.Start("who watches", o.ServeCommand, nil); err != nil {
		return t, err
	}
	if t.rest, err = t.Start("the directory and the gateway", o.ServeCommand, nil); err != nil {
		return t, err
	}
	collector, err := away{t.audience}.do(ctx, request{Do: "collect"})
	if err != nil {
		return t, err
	}
	cell := cellSetup{StateDir: filepath.Join(dir, "state"), Collector: collector.Address}
	opened, err := away{t.rest}.do(ctx, request{Do: "cell", Cell: &cell})
	if err != nil {
		return t, err
	}
	t.admin = opened.Address
	if t.relay, err = openRelay(ctx, o, kind, e, &cell); err == nil {
		t.Closes(t.relay.Close)
	}
	return t, err
}

// watch opens the page and traces, or ends both.
func (t *theatre) watch(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	t.relay.traced = on
	if on {
		_, err := away{t.audience}.do(ctx, request{Do: "watch", URL: t.admin})
		return err
	}
	if _, err := (away{t.audience}).do(ctx, request{Do: "leave"}); err != nil {
		return err
	}
	_, err := away{t.rest}.do(ctx, request{Do: "unwatched"})
	return err
}

// turn is what one round of one way gave.
type turn struct {
	gbps     float64
	cpu      float64 // seconds of the agents' processes and the gateway's, by GB
	handOffs int
}

// round hands over until the time is up.
func (t *theatre) round(ctx context.Context, o HandOffOptions) (got turn, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit+o.Round)
	defer cancel()
	pids := []int{os.Getpid(), t.relay.child.PID(), t.rest.PID()}
	used := -cpuOf(pids)
	var moving time.Duration
	var bytes uint64
	for began := time.Now(); time.Since(began) < o.Round; {
		took, records, err := t.relay.run(ctx, true)
		if err != nil {
			return got, err
		}
		moving, bytes, got.handOffs = moving+took, bytes+t.relay.bytes, got.handOffs+len(records)
	}
	used += cpuOf(pids)
	got.gbps, got.cpu = gbps(bytes, moving), used.Seconds()/(float64(bytes)/1e9)
	return got, nil
}

func cpuOf(pids []int) (total time.Duration) {
	for _, pid := range pids {
		total += bench.CPUTime(pid)
	}
	return total
}

// observe measures one row.
func observe(ctx context.Context, o HandOffOptions, fabricName string, e Errand, progress func(int, string)) (row ObservedRow, err error) {
	opening, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	t, err := openTheatre(opening, o, fabricByName(fabricName), e)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, t.CloseWithin(closeLimit)) }()
	meter := bench.StartMeter([]int{t.relay.child.PID(), t.rest.PID(), t.audience.PID()})
	var turns [2][]turn // unwatched, watched
	for round := range o.Rounds + 1 {
		for i := range 2 {
			watched := (i+round)%2 == 1 // who goes first goes second in the next round
			progress(round, map[bool]string{false: "unwatched", true: "watched"}[watched])
			got, err := t.turn(ctx, o, watched)
			if err != nil {
				return row, fmt.Errorf("round %d, watched %v: %w", round, watched, err)
			}
			if round > 0 {
				which := 0
				if watched {
					which = 1
				}
				turns[which] = append(turns[which], got)
			}
		}
	}
	run := runner{t.relay, true}
	if _, err := moveOnce(ctx, run, true); err != nil {
		return row, err
	}
	row.Fabric, row.Errand, row.Bytes, row.others = fabricName, e, t.relay.bytes, meter.Others()
	if row.Seen, err = t.seen(ctx); err != nil {
		return row, err
	}
	return row, row.sum(turns)
}

// seen ends the agents, which send the last of their spans then, and tells what came.
func (t *theatre) seen(ctx context.Context) (Seen, error) {
	if err := t.relay.CloseWithin(closeLimit); err != nil {
		return Seen{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	a, err := away{t.audience}.do(ctx, request{Do: "leave"})
	if err != nil {
		return Seen{}, err
	}
	return *a.Seen, nil
}

// turn is one round, watched or not.
func (t *theatre) turn(ctx context.Context, o HandOffOptions, watched bool) (got turn, err error) {
	if watched {
		if err := t.watch(ctx, true); err != nil {
			return got, err
		}
	}
	if got, err = t.round(ctx, o); err != nil {
		return got, err
	}
	return got, t.watch(ctx, false)
}
