package entropy

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func estimator(t *testing.T, o Options) *Estimator {
	t.Helper()
	e, err := NewEstimator(&o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var cautious = Options{Alpha: 0.05, EATVariance: 1e-3, EATInterval: 32, RPDI: 3, Transition: 2.5, MinThinkTokens: 512}

// TestConverges: on a steady answer the first fork after the warm-up ends the
// thought, and not one before it.
func TestConverges(t *testing.T) {
	e := estimator(t, cautious)
	for fork := 1; ; fork++ {
		for range 32 {
			e.Token(1, true)
		}
		if !e.ForkDue(true) {
			t.Fatalf("no fork is due after %d tokens", e.Signal().Tokens)
		}
		reason := e.Forked(0.5)
		if want := 4*20 + 1; fork < want && reason != None || fork == want && reason != Converged {
			t.Fatalf("fork %d: %v", fork, reason)
		} else if fork == want {
			return
		}
	}
}

// TestNoReasonBeforeMinThinkTokens: neither reason comes before the floor, both at
// the first occasion after it.
func TestNoReasonBeforeMinThinkTokens(t *testing.T) {
	o := cautious
	o.Alpha, o.MinThinkTokens, o.RPDI = 1, 2000, 1.5
	e := estimator(t, o)
	for i := 1; i <= 2000; i++ {
		nats := 0.1
		if i > 1400 {
			nats = 3
		}
		over, converged := e.Token(nats, true), e.Forked(0.5)
		if early := i < 2000; early && (over != None || converged != None) || !early && (over != Overthinking || converged != Converged) {
			t.Fatalf("token %d: %v, %v", i, over, converged)
		}
	}
}

func TestRPDIIsTestedAtBoundariesOnly(t *testing.T) {
	o := cautious
	o.MinThinkTokens, o.RPDI = 0, 1.5
	e := estimator(t, o)
	for range 2000 {
		e.Token(0.1, true)
	}
	for range Window {
		if got := e.Token(3, false); got != None {
			t.Fatalf("%v at no boundary", got)
		}
	}
	if got := e.Token(3, true); got != Overthinking {
		t.Fatalf("%v at a boundary: %+v", got, e.Signal())
	}
}

// TestRPDIIsTheRatioOfMeans: against sums made anew for every token.
func TestRPDIIsTheRatioOfMeans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 12), Window+1, 3*Window).Draw(t, "entropies")
		var r RPDI
		var all compensated
		for i, v := range values {
			r.Add(v)
			all.add(v)
			index, known := r.Index()
			if i+1 < Window {
				if known {
					t.Fatalf("known after %d tokens", i+1)
				}
				continue
			}
			var last compensated
			for _, v := range values[i+1-Window : i+1] {
				last.add(v)
			}
			if all.sum == 0 {
				if known {
					t.Fatal("0/0 is known")
				}
				continue
			}
			if want := last.sum / Window / (all.sum / float64(i+1)); !known || math.Abs(index-want) > 1e-9*max(1, want) {
				t.Fatalf("token %d: %v (%v), want %v", i, index, known, want)
			}
		}
	})
}

// TestWhatIsMissingIsAbsent: one token without an entropy, and there is no RPDI
// any more, but what is certain without it is said; forks that failed leave EAT as it
// was; without forks there is no EAT.
func TestWhatIsMissingIsAbsent(t *testing.T) {
	o := cautious
	o.MinThinkTokens, o.RPDI, o.Alpha = 0, 1.1, 1
	for name, miss := range map[string]func(e *Estimator){
		"missing":   func(e *Estimator) { e.Miss(1) },
		"NaN":       func(e *Estimator) { e.Token(math.NaN(), true) },
		"infinite":  func(e *Estimator) { e.Token(math.Inf(1), true) },
		"negative":  func(e *Estimator) { e.Token(-1, true) },
		"too large": func(e *Estimator) { e.Token(1000, true) },
	} {
		e := estimator(t, o)
		for range 1000 {
			e.Token(0.1, true)
		}
		miss(e)
		if s := e.Signal(); s.Missing != 1 || s.Tokens != 1001 {
			t.Errorf("%s: %+v", name, s)
		}
		past := slices.Concat(slices.Repeat([]float64{0.1}, 1000), []float64{math.NaN()})
		for i := range 1000 {
			if got := e.Token(5, true); (got == Overthinking) != certainly(append(past, slices.Repeat([]float64{5}, i+1)...), 1.1) {
				t.Fatalf("%s: %v after %d", name, got, i+1)
			}
		}
		for range 20 {
			if got := e.Forked(math.NaN()); got != None {
				t.Fatalf("%s: a fork without an entropy gave %v", name, got)
			}
		}
		s := e.Signal()
		if s.RPDIKnown || s.MeansKnown || s.EAT.Values != 0 || s.EATWarm || s.Missing != 1 || s.Tokens != 2001 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// certainly tells whether the index of a chain is more than a threshold, whatever those
// tokens had that are NaN.
func certainly(chain []float64, threshold float64) bool {
	local, global := 0.0, 0.0
	for i, nats := range chain {
		least, most := nats, nats
		if math.IsNaN(nats) {
			least, most = 0, 24*math.Ln2
		}
		global += most
		if i >= len(chain)-Window {
			local += least
		}
	}
	return len(chain) >= Window && local/Window > threshold*global/float64(len(chain))
}

// TestGapsEndNoThoughtThatGoesOn: where tokens are missing, the index is said to exceed a
// threshold only if it does with whatever they had, and without gaps as it does.
func TestGapsEndNoThoughtThatGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var gappy, whole RPDI
		threshold := rapid.Float64Range(1.01, 4).Draw(t, "threshold")
		gap := rapid.SampledFrom([]float64{0, 0.001, 0.01, 0.3}).Draw(t, "gaps")
		turn := rapid.IntRange(0, 2*Window).Draw(t, "turn")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		missed := false
		for i := range turn + Window {
			nats := random.Float64()
			if i >= turn {
				nats *= 12
			}
			if random.Float64() < gap {
				gappy.Miss(1)
				whole.Add(random.Float64() * mostMissed)
				missed = true
			} else {
				gappy.Add(nats)
				whole.Add(nats)
			}
			if index, known := whole.Index(); gappy.Exceeds(threshold) && !(known && index > threshold-1e-9) || !missed && gappy.Exceeds(threshold) != (known && index > threshold) {
				t.Fatalf("token %d: %v is said to be more than %v", i, index, threshold)
			}
		}
	})
}

// TestALongGap: what lies before it is none of the last tokens.
func TestALongGap(t *testing.T) {
	var r RPDI
	for range 3 * Window {
		r.Add(9)
	}
	r.Miss(Window + 7)
	if r.local != 0 || r.tokens != 4*Window+7 || r.Exceeds(0.001) {
		t.Errorf("%v of %d tokens", r.local, r.tokens)
	}
}

// TestAThoughtThatBeganElsewhere: its tokens count, its entropies are not known.
func TestAThoughtThatBeganElsewhere(t *testing.T) {
	o := cautious
	o.RPDI, o.Alpha = 1.1, 1
	e := estimator(t, o)
	e.Miss(0)
	e.Miss(511)
	for range 2 * Window {
		if got := e.Token(5, true); got != None {
			t.Fatalf("%v of a tail", got)
		}
	}
	if s := e.Signal(); s.RPDIKnown || s.Tokens != 511+2*Window || s.Missing != 511 {
		t.Errorf("%+v", s)
	}
	for range WarmUp(1) {
		e.Forked(1)
	}
	if got := e.Forked(1); got != Converged {
		t.Errorf("forks need no past: %v", got)
	}
}

func TestForksAreDueAtParagraphs(t *testing.T) {
	e := estimator(t, cautious)
	for i := 1; i <= 100; i++ {
		e.Token(1, false)
		if e.ForkDue(false) {
			t.Fatal("due within a paragraph")
		}
		if due := e.ForkDue(true); due != (i >= 32 && i <= 50 || i >= 50+32) {
			t.Fatalf("token %d: due %v", i, due)
		}
		if i == 50 {
			e.Forked(1)
		}
	}
}

func TestTransitionsAreCounted(t *testing.T) {
	e := estimator(t, cautious)
	for _, nats := range []float64{2.5, 2.6, 0, 9} {
		e.Token(nats, false)
	}
	if got := e.Signal().Transitions; got != 2 {
		t.Errorf("%d transitions, want 2", got)
	}
}

// TestRoundingBelowZero: an engine's -1e-7 is a zero.
func TestRoundingBelowZero(t *testing.T) {
	e := estimator(t, cautious)
	e.Token(-1e-7, true)
	if s := e.Signal(); s.Missing != 0 || s.Tokens != 1 {
		t.Errorf("%+v", s)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	for field, spoil := range map[string]func(o *Options){
		"Alpha":          func(o *Options) { o.Alpha = 1e-30 },
		"EATVariance":    func(o *Options) { o.EATVariance = math.NaN() },
		"EATInterval":    func(o *Options) { o.EATInterval = 0 },
		"RPDI":           func(o *Options) { o.RPDI = 1 },
		"Transition":     func(o *Options) { o.Transition = -1 },
		"MinThinkTokens": func(o *Options) { o.MinThinkTokens = -1 },
	} {
		o := cautious
		spoil(&o)
		if _, err := NewEstimator(&o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestEstimatorsAllocateNothing(t *testing.T) {
	e := estimator(t, cautious)
	if n := testing.AllocsPerRun(10, func() {
		e.Token(1, true)
		e.Forked(1)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	if got := [...]string{None.String(), Converged.String(), Overthinking.String(), Reason(9).String()}; got != [...]string{"none", "converged", "overthinking", "reason(9)"} {
		t.Errorf("%v", got)
	}
}
