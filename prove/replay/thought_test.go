package replay

import (
	"testing"

	"meridian/decide/entropy"
	"meridian/decide/governor"
	"meridian/prove/replay/workload"
)

func earlyExits(alpha float64) *governor.Budget {
	return &governor.Budget{MaxThinkTokens: 32768, Entropy: true, Probe: entropy.Options{
		Alpha: alpha, EATVariance: 1e-3, EATInterval: 32, RPDI: 3, Transition: 2.5, MinThinkTokens: 512,
	}}
}

// The estimators find what the model hides: they end thoughts after the answer has
// settled, hardly ever before, and those of chains that stray.
func TestThoughtsEndAfterTheyConverged(t *testing.T) {
	reasons := make(map[governor.ForceReason]int)
	short, saved := 0, int32(0)
	const n = 400
	r := workload.Request{Think: 20_000, Converged: 6_000}
	for number := range int64(n) {
		think, why := endOf(earlyExits(0.2), 1, number, &r)
		reasons[why]++
		saved += r.Think - think
		if why != governor.Free && think < r.Converged {
			short++
		}
		if again, _ := endOf(earlyExits(0.2), 1, number, &r); again != think {
			t.Fatalf("request %d: %d tokens, and then %d", number, think, again)
		}
	}
	if reasons[governor.Converged] < n*9/10 || short > n/50 || saved < n*5_000 {
		t.Errorf("%v, %d cut short, %d tokens saved", reasons, short, saved)
	}
	// Without forks, only those that stray are ended; with a threshold that no thought
	// reaches, only the cap ends one.
	deaf := earlyExits(0.2)
	deaf.Probe.EATVariance = 1e-300
	strayed := 0
	for number := range int64(n) {
		if _, why := endOf(deaf, 1, number, &r); why == governor.Overthinking {
			strayed++
		}
	}
	if strayed == 0 || strayed > n/10 {
		t.Errorf("%d of %d strayed", strayed, n)
	}
}

func TestThoughtsEndAtTheCap(t *testing.T) {
	b := &governor.Budget{MaxThinkTokens: 100}
	for think, want := range map[int32]governor.ForceReason{100: governor.Free, 101: governor.HardCap} {
		if got, why := endOf(b, 1, 1, &workload.Request{Think: think}); got != min(think, 100) || why != want {
			t.Errorf("%d: %d, %v", think, got, why)
		}
	}
}
