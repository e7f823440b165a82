package election_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/member/directory/memdir"
)

// oddClock is the clock of a process that stands still now and then, on a machine
// whose seconds are a little too long or too short. Standing still, nothing
// happens at its time, but the time passes.
type oddClock struct {
	began time.Time
	rate  float64 // its seconds to a true one

	mu    sync.Mutex // protects the rest
	still bool
	due   []func() // while it stands still
}

func (c *oddClock) Now() time.Time {
	return c.began.Add(time.Duration(float64(time.Since(c.began)) * c.rate))
}

func (c *oddClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(time.Duration(float64(d)/c.rate), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.still {
			c.due = append(c.due, f)
			return
		}
		f()
	}).Stop
}

func (c *oddClock) stand(still bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.still = still
	if !still {
		for _, f := range c.due {
			f()
		}
		c.due = nil
	}
}

// cell is several candidates and what was seen of them.
type cell struct {
	t       *testing.T
	random  *rand.Rand
	store   *memdir.Store
	members []*candidate
	clocks  []*oddClock
	leaders map[uint64]string // by term, of those that were seen with authority
	latest  uint64            // of these terms
	known   []uint64          // the latest term that each member has known of
}

func (c *cell) start(i int) {
	c.clocks[i] = &oddClock{began: time.Now(), rate: 0.985 + 0.03*c.random.Float64()}
	c.members[i] = join(c.t, c.store, fmt.Sprint("candidate", i), c.clocks[i])
	c.known[i] = 0
}

// check fails the test when two have authority, when a term has two leaders, and
// when terms do not grow.
func (c *cell) check() {
	c.t.Helper()
	holder := ""
	for i, m := range c.members {
		l, _ := m.Leader()
		if l.Term != 0 && l.Term < c.known[i] {
			c.t.Fatalf("%s knew of term %d, now of %d", m.name, c.known[i], l.Term)
		}
		c.known[i] = max(c.known[i], l.Term)
		term := m.leads()
		if term == 0 {
			continue
		}
		if holder != "" {
			c.t.Fatalf("%s and %s have authority", holder, m.name)
		}
		holder = m.name
		if led := c.leaders[term]; led != "" && led != m.name {
			c.t.Fatalf("%s and %s lead in term %d", led, m.name, term)
		}
		if term < c.latest {
			c.t.Fatalf("%s leads in term %d after term %d", m.name, term, c.latest)
		}
		c.leaders[term], c.latest = m.name, term
	}
}

// disturb does one thing that happens in a cell.
func (c *cell) disturb() {
	i, what := c.random.IntN(len(c.members)), c.random.IntN(12)
	c.t.Logf("%s: disturbance %d of candidate%d", time.Now().Format("15:04:05.000"), what, i)
	switch what {
	case 0, 1:
		c.members[i].client.SetOutage(memdir.Outage(c.random.IntN(4)))
	case 2, 3, 4:
		c.members[i].client.SetOutage(memdir.None)
	case 5:
		c.clocks[i].stand(true)
	case 6, 7:
		c.clocks[i].stand(false)
	case 8:
		c.store.Stop()
	case 9, 10:
		c.store.Start()
	case 11:
		c.clocks[i].stand(false)
		c.members[i].client.SetOutage(memdir.None)
		c.members[i].leave(c.t)
		c.start(i)
	}
}

func (c *cell) heal() {
	c.store.Start()
	for i := range c.members {
		c.members[i].client.SetOutage(memdir.None)
		c.clocks[i].stand(false)
	}
}

func (c *cell) run(steps int) {
	for i := range c.members {
		c.start(i)
	}
	for range steps {
		for range c.random.IntN(3) {
			c.disturb()
		}
		for range 1 + c.random.IntN(20) {
			passes(time.Duration(c.random.Int64N(int64(ttl / 10))))
			c.check()
		}
	}
	c.heal()
	passes(10 * ttl)
	c.check()
	for _, m := range c.members {
		if l, known := m.Leader(); !known || l.Term != c.latest || l.Name != c.leaders[c.latest] {
			c.t.Errorf("in the end %s knows of %+v, %v; %s leads in term %d", m.name, l, known, c.leaders[c.latest], c.latest)
		}
	}
	if leads := func() (n int) {
		for _, m := range c.members {
			if m.leads() != 0 {
				n++
			}
		}
		return n
	}(); leads != 1 {
		c.t.Errorf("in the end %d lead", leads)
	}
}

// Whatever happens to candidates and to the directory, but its loss: at no moment
// do two have authority.
func TestNoTwoLead(t *testing.T) {
	changes := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cell{
					t: t, random: rand.New(rand.NewPCG(seed, 0)), store: memdir.New(memdir.Options{}), leaders: make(map[uint64]string),
					members: make([]*candidate, 4), clocks: make([]*oddClock, 4), known: make([]uint64, 4),
				}
				c.run(100)
				changes += len(c.leaders)
				t.Logf("%d terms", len(c.leaders))
			})
		})
	}
	if changes < 200 {
		t.Errorf("only %d terms in all: too quiet to mean anything", changes)
	}
}
