package reshard

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"meridian/kv"
)

// long is the request that planning is measured by: 128k tokens of an 80-layer
// model from eight ranks to four, in blocks of 16 that lie anywhere in memory.
func long(t testing.TB, scattered bool) (src, dst Side, r Request) {
	const tokens, blockTokens = 128 << 10, 16
	geometry, err := kv.ModelGeometry("llama-3.1-70b")
	if err != nil {
		t.Fatal(err)
	}
	src = Side{Geometry: geometry, Parallelism: kv.Split(80, 8, 1), Layout: layout(t, "LBHNC"), BlockTokens: blockTokens, Blocks: 20000}
	dst = Side{Geometry: geometry, Parallelism: kv.Split(80, 4, 1), Layout: layout(t, "LBHNC"), BlockTokens: blockTokens, Blocks: 30000}
	r = Request{Tokens: kv.TokenRange{End: tokens}, Src: inLine(tokens / blockTokens), Dst: inLine(tokens / blockTokens)}
	if scattered {
		random := rand.New(rand.NewPCG(1, 2))
		for _, side := range []struct {
			h      *Holding
			blocks int
		}{{&r.Src, src.Blocks}, {&r.Dst, dst.Blocks}} {
			ids := random.Perm(side.blocks)
			for i := range side.h.Tables[0] {
				side.h.Tables[0][i] = uint32(ids[i])
			}
		}
	}
	return src, dst, r
}

func benchmarkPlan(b *testing.B, scattered bool) {
	src, dst, r := long(b, scattered)
	b.ReportAllocs()
	for b.Loop() {
		mustPlan(b, src, dst, r)
	}
}

func BenchmarkPlan128kScattered(b *testing.B) { benchmarkPlan(b, true) }
func BenchmarkPlan128kInLine(b *testing.B)    { benchmarkPlan(b, false) }

// A request between two engines that have met before.
func benchmarkRepeat(b *testing.B, scattered bool) {
	src, dst, r := long(b, scattered)
	shapes := NewShapes(8)
	b.ReportAllocs()
	for b.Loop() {
		shape, err := shapes.Prepare(src, dst)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := shape.Plan(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRepeat128kScattered(b *testing.B) { benchmarkRepeat(b, true) }
func BenchmarkRepeat128kInLine(b *testing.B)    { benchmarkRepeat(b, false) }

// Counting a plan's runs out, as the mover of the bytes does.
func BenchmarkRuns128kScattered(b *testing.B) {
	src, dst, r := long(b, true)
	plan := mustPlan(b, src, dst, r)
	b.ReportAllocs()
	runs := 0
	for b.Loop() {
		runs = 0
		for _, f := range plan.Flows() {
			for range f.Runs() {
				runs++
			}
		}
	}
	b.ReportMetric(float64(runs), "runs")
}

// What a plan may take in memory, whatever the machine: planning allocates no
// more than this in all, so a plan cannot be larger.
func TestPlansAreCompact(t *testing.T) {
	src, dst, r := long(t, true)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	plan := mustPlan(t, src, dst, r)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("planning took %d bytes, 1 MiB is the limit", allocated)
	}
	if len(plan.Flows()) != 8 || plan.Bytes() != 128<<10*src.Geometry.BytesPerToken() {
		t.Errorf("%d flows of %d bytes", len(plan.Flows()), plan.Bytes())
	}
}
