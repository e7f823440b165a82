package transfer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"meridian/move/fabric"
	"meridian/prove/bench"
)

const (
	// smallBytes is the write whose latency is measured.
	smallBytes = 4 << 10
	// samples of each kind in one round.
	samples = 2000
)

// lags is what one round of small writes took.
type lags struct {
	done []time.Duration // post to locally done
	echo []time.Duration // post to the other side's answer
	// cores that each side used meanwhile.
	posting, serving float64
}

// sprinter is one whose latency can be measured.
type sprinter interface {
	Name() string
	sprint(ctx context.Context, count int, pinned bool) (lags, error)
	rest()
	wake()
}

// lane is a sprinter with what it has done so far.
type lane struct {
	sprinter
	// rival: a peer, which may be dropped, and is pinned if that suits it.
	rival            bool
	pinned           bool
	done, echo       [2][]float64 // p50 and p99 of each round
	posting, serving []float64
}

var percents = [2]int{50, 99}

func (l *lane) add(got lags) {
	for i, percent := range percents {
		l.done[i] = append(l.done[i], bench.Percentile(got.done, percent))
		if len(got.echo) > 0 {
			l.echo[i] = append(l.echo[i], bench.Percentile(got.echo, percent))
		}
	}
	l.posting, l.serving = append(l.posting, got.posting), append(l.serving, got.serving)
}

func measureLatency(ctx context.Context, o Options, fabricName string, report *Report) (err error) {
	o.Total = bench.Size{Bytes: 1 << 20, Text: "1MiB"}
	kind := fabricByName(fabricName)
	f := newField(report)
	defer func() { err = errors.Join(err, f.Close()) }()
	opening, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	var lanes []*lane
	for _, v := range o.variants() {
		m, err := openOurs(opening, o, kind, v)
		if err != nil {
			return err
		}
		f.Ours = append(f.Ours, m)
		if err := m.openSmall(opening); err != nil {
			return err
		}
		lanes = append(lanes, &lane{sprinter: m, pinned: o.Pin})
	}
	if child := f.Ours[0].child; child == nil {
		report.Miss(bench.Absence{Peer: pingName, Fabric: fabricName, Why: twoProcesses})
	} else {
		ping, err := openPing(opening, child)
		if err != nil {
			return err
		}
		defer ping.close()
		lanes = append(lanes, &lane{sprinter: ping, pinned: o.Pin})
	}
	// NIXL is the only peer with notifications; both of its sides poll.
	if err := f.enter(opening, o, kind, []bench.Peer[contender]{nixlPeer(o, kind, false)}, false); err != nil {
		return err
	}
	for _, rival := range f.Peers {
		lanes = append(lanes, &lane{sprinter: rival.(*pythonPeer), rival: true})
	}
	if lanes, err = f.sprintAll(ctx, o, fabricName, lanes); err != nil {
		return err
	}
	report.addLatency(fabricName, o.variants(), lanes)
	return nil
}

// sprintAll lets everybody run in turn, round by round, and returns those who
// came through.
func (f *field) sprintAll(ctx context.Context, o Options, fabricName string, lanes []*lane) ([]*lane, error) {
	what := fmt.Sprintf("%s %d-byte write with notification", fabricName, smallBytes)
	for round := range o.Rounds + 1 {
		for _, l := range slices.Clone(lanes) {
			o.Tell(bench.Progress{Row: 1, Rows: 1, What: what, Round: round, Rounds: o.Rounds, Who: l.Name()})
			err := l.turn(ctx, round)
			switch p, isPeer := l.sprinter.(contender); {
			case err == nil:
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case l.rival && isPeer:
				f.Drop(p, err)
				lanes = slices.DeleteFunc(lanes, func(other *lane) bool { return other == l })
			default:
				return nil, fmt.Errorf("%s: round %d, %s: %w", what, round, l.Name(), err)
			}
		}
	}
	return lanes, nil
}

// turn runs one round; round 0 warms up.
func (l *lane) turn(ctx context.Context, round int) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	l.wake()
	defer l.rest()
	if round == 0 {
		return l.warm(ctx)
	}
	got, err := l.sprint(ctx, samples, l.pinned)
	if err == nil {
		l.add(got)
	}
	return err
}

// warm runs a few, and finds out whether a rival likes to be pinned.
func (l *lane) warm(ctx context.Context) error {
	placements := []bool{l.pinned}
	if l.rival {
		placements = []bool{false, true}
	}
	best := math.Inf(1)
	for _, pinned := range placements {
		got, err := l.sprint(ctx, samples/4, pinned)
		if err != nil {
			return err
		}
		if typical := bench.Percentile(got.done, 50); typical < best {
			best, l.pinned = typical, pinned
		}
	}
	return nil
}

// openSmall makes ready for small writes and their echo.
func (m *ours) openSmall(ctx context.Context) error {
	if err := m.load(ctx, Case{Op: "write", Block: smallBytes, Total: smallBytes, Layout: Dense}); err != nil {
		return err
	}
	_, err := m.far.do(ctx, request{Do: "echo", Peer: &m.near.self})
	return err
}

// sprint times small writes of Meridian.
func (m *ours) sprint(ctx context.Context, count int, pinned bool) (got lags, err error) {
	servingPID := 0
	if m.child != nil {
		servingPID = m.child.PID()
		if err := bench.PlacePair(os.Getpid(), servingPID, pinned); err != nil {
			return got, err
		}
		defer bench.Pin(os.Getpid(), bench.UsableCores())
	}
	stop := watchCores(os.Getpid(), servingPID)
	for range count {
		took, err := m.small(ctx, keepQuiet)
		if err != nil {
			return got, m.explain(err)
		}
		got.done = append(got.done, took)
	}
	for range count {
		took, err := m.small(ctx, pleaseReply)
		if err != nil {
			return got, m.explain(err)
		}
		got.echo = append(got.echo, took)
	}
	got.posting, got.serving = stop()
	return got, nil
}

func (m *ours) small(ctx context.Context, notification string) (time.Duration, error) {
	start := time.Now()
	t, err := m.link.Post(ctx, m.prepared[0], fabric.PostOptions{ID: newID(), Grant: m.grant, Notify: true, Notification: []byte(notification)})
	if err == nil {
		err = t.Await(ctx)
	}
	if err != nil {
		return 0, err
	}
	if notification == pleaseReply {
		select {
		case <-m.near.notes:
		case <-ctx.Done():
			return 0, fmt.Errorf("no answer to a notification: %w", ctx.Err())
		}
	}
	return time.Since(start), nil
}

// watchCores tells how many cores two processes use until stop is called. Where
// the posting one serves as well, the other's id is 0 and it uses none.
func watchCores(postingPID, servingPID int) (stop func() (forPosting, forServing float64)) {
	start, near, far := time.Now(), bench.CPUTime(postingPID), bench.CPUTime(servingPID)
	return func() (forPosting, forServing float64) {
		wall := time.Since(start).Seconds()
		forPosting = (bench.CPUTime(postingPID) - near).Seconds() / wall
		if servingPID != 0 {
			forServing = (bench.CPUTime(servingPID) - far).Seconds() / wall
		}
		return forPosting, forServing
	}
}

// sprint times small writes of NIXL.
func (p *pythonPeer) sprint(ctx context.Context, count int, pinned bool) (got lags, err error) {
	if err := p.place(pinned); err != nil {
		return got, err
	}
	if err := p.Serve.Send(map[string]any{"do": "reply", "count": 2 * count}); err != nil {
		return got, err
	}
	stop := watchCores(p.Post.PID(), p.Serve.PID())
	var took struct{ Done, Echo []time.Duration }
	if err := p.Post.Ask(ctx, map[string]any{"do": "latency", "bytes": smallBytes, "count": count}, &took); err != nil {
		return got, err
	}
	got = lags{done: took.Done, echo: took.Echo}
	got.posting, got.serving = stop()
	return got, p.Serve.Receive(ctx, nil)
}
