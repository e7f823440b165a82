package governor

import (
	"math"
	"math/rand/v2"
	"testing"

	"meridian/decide/policy"
)

// machine is a roofline: weights are read in 17 ms, or multiplied by tokens, and
// attention comes on top.
type machine struct{ read, perToken, context, pair float64 }

func (m machine) step(w *Work) float64 {
	return 1e6 + max(m.read, m.perToken*float64(w.Tokens)) + m.context*float64(w.Context) + m.pair*float64(w.Pairs)
}

// knee is how many tokens more than so many take a tenth longer.
func (m machine) knee(tokens int32) int32 {
	return int32(1.1*(1e6+m.read)/m.perToken-1e6/m.perToken) - tokens
}

var roofline = machine{read: 17e6, perToken: 110e3, context: 68, pair: 3.5}

// serve feeds a calibration with steps as they come in service: batches that grow
// and shrink, contexts of any length, prompts in pieces of what is free.
func serve(c *Calibration, m machine, steps int, noise func() float64) {
	random := rand.New(rand.NewPCG(1, 2))
	decoding, length, prompt, done := int32(30), int32(500), int32(0), int32(0)
	for range steps {
		decoding = min(max(decoding+random.Int32N(5)-2, 1), 120)
		length = min(max(length+random.Int32N(201)-100, 50), 4000)
		var w Work
		for range decoding {
			w.Add(length, 1)
		}
		if done == prompt && random.IntN(4) == 0 {
			prompt, done = 1+random.Int32N(6000), 0
		}
		if done < prompt {
			chunk := int32(500)
			if free := c.Costs(decoding).FreeTokens; free > 0 {
				chunk = max(32, free)
			}
			chunk = min(chunk, prompt-done)
			w.Add(done, chunk)
			done += chunk
		}
		c.Stepped(policy.Instant(m.step(&w)*noise()), &w)
	}
}

// The number of free tokens comes close to the knee of a roofline, and attention,
// other work on the machine and steps that were held up do not change that.
func TestFreeTokensAreUpToTheKnee(t *testing.T) {
	for name, c := range map[string]struct {
		noise  func(*rand.Rand) float64
		within float64
	}{
		"exact": {func(*rand.Rand) float64 { return 1 }, 0.04},
		"noisy": {func(random *rand.Rand) float64 { return math.Exp(0.03 * random.NormFloat64()) }, 0.12},
		"held up": {func(random *rand.Rand) float64 {
			if random.IntN(30) == 0 {
				return 1 + 20*random.Float64()
			}
			return math.Exp(0.03 * random.NormFloat64())
		}, 0.15},
	} {
		t.Run(name, func(t *testing.T) {
			calibration := Calibration{BlockTokens: 16}
			random := rand.New(rand.NewPCG(3, 4))
			serve(&calibration, roofline, 20_000, func() float64 { return c.noise(random) })
			for _, decoding := range []int32{1, 20, 40, 64} {
				got, want := calibration.Costs(decoding), roofline.knee(decoding)
				if all := float64(want + decoding); math.Abs(float64(got.FreeTokens-want)) > c.within*all {
					t.Errorf("beside %d: %d tokens are free, want %d", decoding, got.FreeTokens, want)
				}
				if token := float64(got.PrefillToken); math.Abs(token/roofline.perToken-1) > 0.3 {
					t.Errorf("a token takes %g ns, want %g", token, roofline.perToken)
				}
			}
		})
	}
}

// Where every token costs its part none is free, and what was not measured is not
// known.
func TestNoFreeTokens(t *testing.T) {
	calibration := Calibration{BlockTokens: 16}
	if free := calibration.Costs(30).FreeTokens; free != 0 {
		t.Errorf("%d tokens are free, and no step was measured", free)
	}
	straight := machine{read: 0, perToken: 100e3, context: 68, pair: 3.5}
	serve(&calibration, straight, 5_000, func() float64 { return 1 })
	if free := calibration.Costs(30).FreeTokens; free != 0 {
		t.Errorf("%d tokens are free though each takes as long", free)
	}
}

func TestPointsOfACurve(t *testing.T) {
	last := -1
	for tokens := int32(0); tokens < maxCurveTokens; tokens++ {
		at := pointOf(tokens)
		if at != last && at != last+1 || at >= curvePoints {
			t.Fatalf("%d tokens are of point %d, those before of %d", tokens, at, last)
		}
		last = at
	}
	if last != curvePoints-1 {
		t.Errorf("%d points, and %d are used", curvePoints, last+1)
	}
}

// Facts of steps are enough to learn it, with what their commits attended to.
func TestFactsTellFreeTokens(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	length := int64(g.snapshot.Requests[0].Length)
	step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}}})
	if want := (Work{Tokens: 1, Sequences: 1, Context: length + 1}); g.attended != want {
		t.Errorf("commits attended to %+v, want %+v", g.attended, want)
	}
	for _, tokens := range []int32{1, 8, 16, 64, 128, 160, 176, 256, 512} {
		for range counts {
			took := roofline.step(&Work{Tokens: tokens})
			step(t, g, Facts{Took: policy.Instant(took), Computed: tokens, Sequences: 1})
		}
	}
	if got, want := p.seen.Costs.FreeTokens, roofline.knee(1); max(got-want, want-got) > want/10 {
		t.Errorf("the policy hears of %d free tokens, want %d", got, want)
	}
}
