// Package fabrictest is the suite that every fabric passes. It knows the
// contract and nothing else: what a fabric is made of shows only through
// fabric.Fabric and fabric.Link.
//
// Each case plays on a stage of its own: two agents, near and far; near posts,
// far serves. Every section has an image, what it must hold byte by byte, so
// that one comparison sees a swapped block, a touched guard byte and a late
// write alike. When a transfer ends, its state says what the images become:
//
//	Done           every byte of the destination is new
//	NotSubmitted   nothing changed
//	InDoubt        each byte of the destination is old or new
//
// When a case is over, every reference must be back, every region gone and
// every goroutine ended.
package fabrictest

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// Options tells the suite how to make the fabric under test.
type Options struct {
	// Open opens the fabric of one agent. self has its name and incarnation; guard
	// is for a fabric that serves others under grants; the suite closes what Open
	// returns.
	Open func(t testing.TB, self fabric.Peer, events fabric.Events, guard fabric.Guard) fabric.Fabric
	// Loopback is for a fabric whose only peer is itself: near and far are then
	// one agent.
	Loopback bool
	// NearSection and FarSection make the memory of the two sides; the suite
	// closes it. Nil means DRAM.
	NearSection, FarSection func(t testing.TB, sizeBytes uint64) *mem.Section
	// Kill makes a fabric die as abruptly as it can: peers get no word of it
	// beyond what the system tells them. The suite still closes it. Nil skips
	// the cases about death.
	Kill func(f fabric.Fabric)
	// Stall keeps what near posts to far from ending, until resume is called or
	// near stops it. Nil skips what only a stalled transfer can show.
	Stall func(near, far fabric.Fabric) (resume func())
	// Patience is how long something may take that the contract bounds by local
	// work; default 30 s: machines that run tests are busy.
	Patience time.Duration
	// Quiet is how long a late write or notification is waited for; default
	// 20 ms.
	Quiet time.Duration
	// Sums says that the fabric takes the sums of what it places, where they are
	// wanted, in the memory of both sides.
	Sums bool
	// Brief plays every case once, and crowds with fewer, for a variant of a
	// fabric whose main form is played in full: moments are drawn anew at every
	// run, so none stays unseen.
	Brief bool
	// Seed repeats a run. Zero takes FABRICTEST_SEED, or draws one.
	Seed uint64
}

func (o Options) withDefaults(t testing.TB) Options {
	arena := func(t testing.TB, sizeBytes uint64) *mem.Section {
		t.Helper()
		a, err := mem.NewArena(mem.ArenaOptions{Name: "fabrictest", SizeBytes: sizeBytes, NUMANode: -1})
		if err != nil {
			t.Fatal(err)
		}
		return a.Section
	}
	if o.NearSection == nil {
		o.NearSection = arena
	}
	if o.FarSection == nil {
		o.FarSection = arena
	}
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	o.Quiet = cmp.Or(o.Quiet, 20*time.Millisecond)
	if o.Seed == 0 {
		o.Seed = seed(t)
	}
	return o
}

const seedVariable = "FABRICTEST_SEED"

func seed(t testing.TB) uint64 {
	text, given := os.LookupEnv(seedVariable)
	if !given {
		return rand.Uint64() | 1
	}
	s, err := strconv.ParseUint(text, 10, 64)
	if err != nil || s == 0 {
		t.Fatalf("%s=%q is not a positive number", seedVariable, text)
	}
	return s
}

// testCase is one case: what happens on a stage.
type testCase struct {
	name string
	// rounds is how often it is played, each time on a new stage; 0 means once.
	rounds int
	run    func(*fixture)
}

func allPlays() (all []testCase) {
	for _, some := range [][]testCase{
		contentPlays, refusalPlays, fencePlays, revokePlays, cancelPlays, deathPlays, closePlays, noticePlays, repeatPlays, crowdPlays,
	} {
		all = append(all, some...)
	}
	return all
}

// Run runs the whole suite.
func Run(t *testing.T, o Options) {
	o = o.withDefaults(t)
	t.Logf("%s=%d repeats this run", seedVariable, o.Seed)
	for _, p := range allPlays() {
		t.Run(p.name, func(t *testing.T) { perform(t, o, p) })
	}
}

// perform plays one case. Its randomness rests on the seed and its name, so
// that it can be repeated alone.
func perform(t testing.TB, o Options, p testCase) {
	key := [32]byte{}
	copy(key[:], p.name)
	for i := range 8 {
		key[24+i] = byte(o.Seed >> (8 * i))
	}
	random := rand.New(rand.NewChaCha8(key))
	rounds := max(1, p.rounds)
	if o.Brief {
		rounds = 1
	}
	for round := range rounds {
		failed := t.Failed()
		playOnce(t, o, p, random)
		if t.Failed() && !failed {
			t.Logf("in round %d of %d; %s=%d repeats it", round+1, rounds, seedVariable, o.Seed)
		}
		if t.Failed() {
			return
		}
	}
}

func playOnce(t testing.TB, o Options, p testCase, random *rand.Rand) {
	t.Helper()
	s := newStage(t, o, random)
	defer s.clear()
	s.setUp()
	p.run(s)
}
