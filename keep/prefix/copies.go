package prefix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/keep/store/admission"
	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

const (
	// hotUses is how often a run is granted, lately, before it is copied.
	hotUses = 4
	// maxHot bounds how many such runs are remembered, maxCopied how many units one has.
	maxHot    = 64
	maxCopied = 1 << 10
	// copyPause is how often it is looked at which copies are wanted; recheck how long one
	// that was looked at is left alone while no owner is lost.
	copyPause = time.Second
	recheck   = 30 * time.Second
	// maxCopyTries is how often a run is tried in a row.
	maxCopyTries = 20
	// copyBytes is how much is copied in a second, at most.
	copyBytes = 256 << 20
	// sketchedRuns is how many runs uses are told apart of, in 4 bytes each.
	sketchedRuns = 1 << 14
)

// hotRun is a run that is used often: there are to be copies of it.
type hotRun struct {
	shape keys.Shape
	units keys.Chain
	first int
	// finder is the agent that last asked for it from elsewhere.
	finder string
	// refused are owners that would take no copy since it was due, or said nothing.
	refused []string
	due     bool
	tries   int
	checked time.Time
	used    uint64
}

// copier sees to it that there are copies of what this agent's owner grants often. The
// cache's mu protects it.
type copier struct {
	sketch *admission.Sketch
	budget admission.Budget
	began  time.Time
	runs   map[kv.Hash]*hotRun // by the last unit's key
	owners []kv.Member         // that were there when it was last looked
	uses   uint64
	wake   chan struct{} // has room for one
}

func newCopier(now time.Time) *copier {
	return &copier{
		sketch: admission.NewSketch(sketchedRuns), budget: admission.NewBudget(copyBytes), began: now, runs: make(map[kv.Hash]*hotRun), wake: make(chan struct{}, 1),
	}
}

// granted notes that a run was granted to an engine of an agent.
func (c *Cache) granted(from kv.Member, m *keys.FindAsk) {
	if c.copier == nil || len(m.Units.Keys) > maxCopied {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := m.Units.Keys[len(m.Units.Keys)-1]
	if c.copier.sketch.Use(keys.SketchOf(last)) < hotUses {
		return
	}
	r := c.copier.remember(last, hotRun{shape: m.Shape, units: m.Units, first: m.First})
	if from != c.self {
		r.finder = from.Name
	}
	if now := c.options.Clock.Now(); !r.due && now.Sub(r.checked) >= recheck {
		r.due, r.tries, r.refused = true, 0, nil
		c.copier.rouse()
	}
}

// remember notes a run that is hot; the one that was used longest ago makes room.
func (o *copier) remember(last kv.Hash, r hotRun) *hotRun {
	o.uses++
	one := o.runs[last]
	if one == nil {
		if len(o.runs) >= maxHot {
			var oldest kv.Hash
			for key, other := range o.runs {
				if oldest == (kv.Hash{}) || other.used < o.runs[oldest].used {
					oldest = key
				}
			}
			delete(o.runs, oldest)
		}
		one = &r
		o.runs[last] = one
	}
	one.used = o.uses
	return one
}

func (o *copier) rouse() {
	select {
	case o.wake <- struct{}{}:
	default: // it is about to look
	}
}

// copyHot makes copies of what is hot until the cache is closed: one run at a time.
func (c *Cache) copyHot() {
	for {
		passed := make(chan struct{})
		stop := c.options.Clock.AfterFunc(copyPause, func() { close(passed) })
		select {
		case <-c.copier.wake:
		case <-passed:
		case <-c.ctx.Done():
			stop()
			return
		}
		stop()
		for _, last := range c.dueRuns() {
			if c.ctx.Err() != nil {
				return
			}
			c.copyOne(last)
		}
	}
}

// dueRuns is which runs are to be looked at, in order. When an owner is lost, that is all.
func (c *Cache) dueRuns() (due []kv.Hash) {
	var owners []kv.Member
	for _, o := range c.options.Store.Owners() {
		owners = append(owners, kv.Member{Name: o.Name, Incarnation: o.Incarnation})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := slices.ContainsFunc(c.copier.owners, func(one kv.Member) bool { return !slices.Contains(owners, one) })
	c.copier.owners = owners
	for last, r := range c.copier.runs {
		if lost {
			r.due, r.tries, r.refused = true, 0, nil
		}
		if r.due {
			due = append(due, last)
		}
	}
	slices.SortFunc(due, func(a, b kv.Hash) int { return slices.Compare(a[:], b[:]) })
	return due
}

// errNotNow means that there is too much to do for copies.
var errNotNow = errors.New("offload: too much goes on for copies")

// copyOne has the next copy of a run made that is wanted. What cannot be now is tried again.
func (c *Cache) copyOne(last kv.Hash) {
	c.mu.Lock()
	var r hotRun
	if at := c.copier.runs[last]; at != nil {
		r = *at
	}
	c.mu.Unlock()
	if len(r.units.Keys) == 0 {
		return
	}
	more, err := c.copyRun(&r)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.copier.runs[last]
	if at == nil {
		return
	}
	at.checked = c.options.Clock.Now()
	at.tries++
	at.refused = r.refused
	at.due = (more || err != nil) && at.tries < maxCopyTries
	if err != nil {
		c.options.Logger.Debug("a run that is used often was not copied", "units", len(r.units.Keys), "error", err)
	}
}

// copyRun has the next copy of a run made, and reports whether there was one to make: then
// another may be wanted.
func (c *Cache) copyRun(r *hotRun) (more bool, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.KeepTimeout)
	defer cancel()
	copies, err := c.whereCopies(ctx, r.units)
	if err != nil {
		return false, err
	}
	_, owners := c.owners()
	for _, have := range copies { // the master may believe in an owner that has gone
		for i, name := range have {
			if !slices.Contains(owners, name) {
				have[i] = ""
			}
		}
	}
	c.noteSole(r.units, copies)
	able := c.copyReaders()
	owners = slices.DeleteFunc(keys.Belongs(r.units, owners), func(name string) bool { return name == c.self.Name || !able[name] })
	if slices.Contains(owners, r.finder) {
		owners = append([]string{r.finder}, owners...)
	}
	willing := slices.DeleteFunc(slices.Clone(owners), func(name string) bool { return slices.Contains(r.refused, name) })
	number, first, name, ok := keys.CopyTo(copies, willing)
	if !ok && len(r.refused) > 0 { // no other is left: one of them may have room by now
		r.refused = nil
		number, first, name, ok = keys.CopyTo(copies, owners)
	}
	if !ok {
		return false, nil
	}
	unit, err := r.shape.Unit()
	if err != nil {
		return false, err
	}
	if !c.mayCopy(uint64(len(r.units.Keys)-first) * objectBytes(unit)) {
		return false, errNotNow
	}
	return true, c.copyTo(ctx, r, number, first, name)
}

// noteSole tells the store which copies of this agent's owner stand in for units that no owner
// has any more, by who has which: they do not leave first as long as that is so.
func (c *Cache) noteSole(units keys.Chain, copies [][]string) {
	for n := 1; n < len(copies); n++ {
		if !slices.Contains(copies[n], c.self.Name) {
			continue
		}
		_ = c.options.Store.SetLastCopy(runOf(units).Copy(n+1), keys.LastCopies(copies, n, c.self.Name)) // its keys are names: they are in the store
	}
}

// copyReaders are the owners that know what a copy is: one of an older build would say nothing.
func (c *Cache) copyReaders() map[string]bool {
	able := make(map[string]bool)
	for _, o := range c.options.Store.Owners() {
		able[o.Name] = keys.ReadsCopies(o.Prefixes)
	}
	return able
}

// mayCopy reports whether so many bytes may be copied now: copies are the first to be
// dropped.
func (c *Cache) mayCopy(bytes uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, asks := c.granting.InFlight(); asks > maxFinds/8 {
		return false
	}
	return c.copier.budget.Spend(kv.Instant(c.options.Clock.Now().Sub(c.copier.began)/time.Microsecond), bytes)
}

// copyTo offers units to an owner that is to keep copies of them, and notes if it will not.
func (c *Cache) copyTo(ctx context.Context, r *hotRun, number, first int, name string) error {
	to, reads, err := c.owner(name)
	if err != nil {
		return err
	}
	units, within := r.units.Part(first, len(r.units.Keys)), uint64(c.options.KeepTimeout/time.Millisecond)
	// Both sides know the keys, which say what the units are: the fingerprint need say no more.
	granted := c.grant(ctx, &keys.FindAsk{
		Shape: r.shape, Units: units, First: r.first + first, Fingerprint: handoff.Fingerprint{Prompt: units.Keys[len(units.Keys)-1]}, WithinMs: within,
	})
	if granted.Verdict != keys.Taken {
		return fmt.Errorf("offload: what is to be copied is %v here", granted.Verdict)
	}
	patient, cancel := context.WithTimeout(ctx, c.options.KeepTimeout/4) // one that hangs is not the only one
	defer cancel()
	m, err := c.ask(patient, to, &keys.CopyAsk{Shape: r.shape, Units: r.units, First: r.first, Have: first, Number: number, Ticket: granted.Ticket, WithinMs: within, Pays: keys.ReadsPayer(reads) && r.units.Payer != ""})
	answer, is := m.(*keys.KeepAnswer)
	switch {
	case err == nil && !is:
		err = errors.New("offload: it answered something else")
	case err == nil && answer.Verdict != keys.Taken:
		err = fmt.Errorf("offload: %s says %v to a copy: %s", name, answer.Verdict, answer.Why)
	}
	if err != nil {
		c.decline(granted.Ticket)
		r.refused = append(slices.Clone(r.refused), name)
	}
	c.count(func(m *Metrics) {
		if err != nil {
			m.CopiesRefused++
		} else {
			m.CopiesMade++
		}
	})
	return err
}

// takeCopy takes copies of units that another owner has.
func (c *Cache) takeCopy(from kv.Member, m *keys.CopyAsk) *keys.KeepAnswer {
	if m.Number > c.options.Replicas { // this agent would find such a copy nowhere
		c.count(func(m *Metrics) { m.TakesRefused++ })
		return &keys.KeepAnswer{Verdict: keys.Refused, Why: fmt.Sprintf("there are %d copies at most here (store.replicas)", c.options.Replicas)}
	}
	run := runOf(m.Units).Copy(m.Number)
	answer := c.takeUnits(c.ctx, from, &taking{
		ticket: m.Ticket, shape: &m.Shape, within: m.WithinMs, first: m.First + m.Have, touched: run,
		head: store.Run{Tenant: run.Tenant, Keys: run.Keys[:m.Have]}, units: store.Run{Tenant: run.Tenant, Payer: run.Payer, Keys: run.Keys[m.Have:]},
	})
	if answer.Verdict == keys.Taken && c.copier != nil && len(m.Units.Keys) <= maxCopied {
		c.mu.Lock()
		defer c.mu.Unlock()
		r := c.copier.remember(m.Units.Keys[len(m.Units.Keys)-1], hotRun{shape: m.Shape, units: m.Units, first: m.First})
		r.checked = c.options.Clock.Now() // who asked sees to the others, unless it is lost
	}
	return answer
}

// whereCopies says who has which copies of units: for each number, from 1 on.
func (c *Cache) whereCopies(ctx context.Context, units keys.Chain) ([][]string, error) {
	run := runOf(units)
	all := store.Run{Tenant: run.Tenant}
	for n := range c.options.Replicas {
		all.Keys = append(all.Keys, run.Copy(n+1).Keys...)
	}
	have, err := c.where(ctx, all)
	copies := make([][]string, c.options.Replicas)
	for n := range copies {
		copies[n] = make([]string, len(run.Keys))
		if len(have) == len(all.Keys) {
			copies[n] = have[n*len(run.Keys) : (n+1)*len(run.Keys)]
		}
	}
	return copies, err
}

// choose says from whom to take units of which there are copies; who is avoided has nothing.
func (c *Cache) choose(copies [][]string, avoid map[string]bool) []string {
	c.mu.Lock()
	c.uses++
	turn := int(c.uses % uint64(len(copies)))
	c.mu.Unlock()
	return keys.Choose(copies, c.self.Name, turn, avoid)
}

// namesHere are the names under which this agent's owner has units, or those of the units
// themselves.
func (c *Cache) namesHere(units keys.Chain) store.Run {
	run := runOf(units)
	here, err := c.options.Store.Here(run)
	for n := 2; n <= c.options.Replicas && err == nil && slices.Contains(here, ""); n++ {
		other := run.Copy(n)
		var has []string
		has, err = c.options.Store.Here(other)
		for i := range has {
			if here[i] == "" && has[i] != "" {
				run.Keys[i], here[i] = other.Keys[i], has[i]
			}
		}
	}
	return run
}
