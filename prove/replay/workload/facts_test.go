package workload

import (
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/internal/require"
)

// dataDir is the folder with the public traces, or the test is skipped.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MERIDIAN_DATA")
	if dir == "" {
		require.Skip(t, "traces", "MERIDIAN_DATA names no folder with the public traces")
	}
	return dir
}

// facts are figures of a workload.
type facts struct {
	rate, prompt, generated, p50, p95, p99, share, hits, thinkP50, thinkP95 float64
	requests                                                                int
}

func measure(t *testing.T, name string, o Options) (facts, Info) {
	t.Helper()
	source, info, err := Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var f facts
	var generated, thought []float64
	seen := make(map[uint64]bool)
	var blocks, hits float64
	for r, more := source.Next(); more; r, more = source.Next() {
		g := float64(r.Think + r.Output)
		generated, thought = append(generated, g), append(thought, float64(r.Think))
		f.prompt += float64(r.Prompt)
		f.generated += g
		f.share += float64(r.Think) / g
		for _, b := range r.Prefix {
			if seen[b] {
				hits++
			}
			seen[b] = true
			blocks++
		}
		if r.Prompt < 1 || r.Output < 1 || r.Think < 0 || r.Converged > r.Think || r.Think > 0 && r.Converged < 1 || r.Tenant >= info.Tenants {
			t.Fatalf("%s: %+v", name, r)
		}
	}
	if err := source.Err(); err != nil {
		t.Fatal(err)
	}
	f.requests = len(generated)
	n := float64(f.requests)
	f.rate, f.prompt, f.generated, f.share = n/info.Duration.Seconds(), f.prompt/n, f.generated/n, f.share/n
	f.hits = hits / max(blocks, 1)
	slices.Sort(generated)
	slices.Sort(thought)
	f.thinkP50, f.thinkP95 = thought[len(thought)/2], thought[len(thought)*95/100]
	f.p50, f.p95, f.p99 = generated[len(generated)/2], generated[len(generated)*95/100], generated[len(generated)*99/100]
	near(t, name+": rate against Info", f.rate, info.Rate, 0.01)
	near(t, name+": prompt against Info", f.prompt, info.MeanPrompt, 0.02)
	near(t, name+": generated against Info", f.generated, info.MeanThink+info.MeanOutput, 0.02)
	return f, info
}

// The figures of ServeGen's day, as they were computed from its distributions
// by another program.
func TestServeGenFacts(t *testing.T) {
	dir := dataDir(t)
	for coupling, thought := range [][2]float64{Comonotone: {487, 5302}, Independent: {478, 4703}} {
		f, info := measure(t, "servegen-r1", Options{DataDir: dir, Seed: 1, Coupling: Coupling(coupling)})
		near(t, "requests", float64(f.requests), 1_383_669, 0.002)
		near(t, "rate", f.rate, 16.01, 0.002)
		near(t, "generated", f.generated, 1527, 0.01)
		near(t, "p50", f.p50, 792, 0.01)
		near(t, "p95", f.p95, 5701, 0.01)
		near(t, "p99", f.p99, 12607, 0.02)
		near(t, "share of thought", f.share, 0.70, 0.02)
		near(t, "median thought", f.thinkP50, thought[0], 0.01)
		near(t, "p95 of thoughts", f.thinkP95, thought[1], 0.01)
		if info.Tenants != 73 || info.Synthetic || info.Sample {
			t.Errorf("%+v", info)
		}
	}
}

func TestIndependentByName(t *testing.T) {
	short := Options{Seed: 1, Duration: time.Minute}
	byName, info := collect(t, "servegen-r1-independent", short)
	usual, _ := collect(t, "servegen-r1", short)
	short.Coupling = Independent
	byOption, _ := collect(t, "servegen-r1", short)
	if !reflect.DeepEqual(byName, byOption) || reflect.DeepEqual(byName, usual) || !strings.Contains(info.Label, "independent") {
		t.Errorf("%d, %d and %d requests, %+v", len(byName), len(byOption), len(usual), info)
	}
}

// A window that would end after the end of time ends with the workload.
func TestLongestWindow(t *testing.T) {
	for _, name := range []string{"servegen-r1", "mooncake-conversation", "azure-code"} {
		whole, info := collect(t, name, Options{Seed: 1, Scale: 0.01})
		long, same := collect(t, name, Options{Seed: 1, Scale: 0.01, Duration: math.MaxInt64})
		if len(whole) != len(long) || info != same {
			t.Errorf("%s: %d requests of %d, %+v", name, len(long), len(whole), same)
		}
	}
}

// What an hour holds is the same whether the hours before it were drawn.
func TestServeGenHours(t *testing.T) {
	for _, dir := range []string{"", os.Getenv("MERIDIAN_DATA")} {
		o := Options{DataDir: dir, Seed: 3, Start: 2 * time.Hour, Duration: 2 * time.Hour, Scale: 0.1}
		both, _ := collect(t, "servegen-r1", o)
		o.Start, o.Duration = 3*time.Hour, time.Hour
		second, _ := collect(t, "servegen-r1", o)
		i := slices.IndexFunc(both, func(r Request) bool { return r.At >= time.Hour })
		if len(both)-i != len(second) {
			t.Fatalf("%d requests alone, %d after another hour", len(second), len(both)-i)
		}
		for j, r := range second {
			r.At += time.Hour
			// Convergence is drawn in the order of the requests.
			r.Converged = both[i+j].Converged
			if got := both[i+j]; got.At != r.At || got.Prompt != r.Prompt || got.Think != r.Think || got.Output != r.Output || got.Tenant != r.Tenant {
				t.Fatalf("request %d: %+v, and alone %+v", j, got, r)
			}
		}
	}
}

func TestTraceFacts(t *testing.T) {
	dir := dataDir(t)
	for name, want := range map[string]facts{
		"mooncake-conversation": {requests: 12031, rate: 3.40, prompt: 12035, generated: 343, hits: 0.366},
		"mooncake-synthetic":    {requests: 3993, prompt: 15325, generated: 149, hits: 0.640},
		"azure-code":            {requests: 8819, prompt: 2048, generated: 28},
		"azure-conv":            {requests: 19366, prompt: 1155, generated: 211},
	} {
		f, info := measure(t, name, Options{DataDir: dir})
		if f.requests != want.requests || info.Sample {
			t.Errorf("%s: %d requests, %+v", name, f.requests, info)
		}
		near(t, name+": prompt", f.prompt, want.prompt, 0.001)
		near(t, name+": generated", f.generated, want.generated, 0.01)
		if want.hits > 0 {
			near(t, name+": prefix hits", f.hits, want.hits, 0.01)
		}
		if want.rate > 0 {
			near(t, name+": rate", f.rate, want.rate, 0.01)
		}
	}
}

// The samples are like what they stand for, and are called samples.
func TestSamples(t *testing.T) {
	for name, want := range map[string]facts{
		"servegen-r1":           {rate: 16, generated: 1527, p50: 792, p95: 5701, share: 0.70},
		"mooncake-conversation": {rate: 3.4, prompt: 12035, generated: 343, hits: 0.366},
		"mooncake-synthetic":    {prompt: 15325, generated: 149, hits: 0.640},
		"azure-code":            {prompt: 2048, generated: 28},
		"azure-conv":            {prompt: 1155, generated: 211},
	} {
		o := Options{Seed: 1}
		if name == "servegen-r1" {
			o.Scale = 0.1
			want.rate /= 10
		}
		f, info := measure(t, name, o)
		if !info.Sample || !info.Synthetic || info.Licence != "" {
			t.Errorf("%s: not called a sample: %+v", name, info)
		}
		for what, pair := range map[string][2]float64{
			"rate": {f.rate, want.rate}, "prompt": {f.prompt, want.prompt}, "generated": {f.generated, want.generated},
			"p50": {f.p50, want.p50}, "p95": {f.p95, want.p95}, "share": {f.share, want.share}, "prefix hits": {f.hits, want.hits},
		} {
			if pair[1] > 0 {
				near(t, name+": "+what, pair[0], pair[1], 0.15)
			}
		}
	}
}
