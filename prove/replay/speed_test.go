package replay

import (
	"testing"

	"meridian/prove/replay/workload"
)

// BenchmarkStock is a request of ServeGen's lengths, near capacity.
func BenchmarkStock(b *testing.B) {
	p := Profiles()[0]
	c := Config{Profile: p}
	source, info, err := workload.Open("servegen-r1", workload.Options{Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	capacity, err := Capacity(b.Context(), c, source, 6000)
	if err != nil {
		b.Fatal(err)
	}
	source.Close()
	source, _, err = workload.Open("servegen-r1", workload.Options{Seed: 1, Scale: 0.9 * capacity / info.Rate})
	if err != nil {
		b.Fatal(err)
	}
	defer source.Close()
	b.ReportAllocs()
	b.ResetTimer()
	r, err := Run(b.Context(), c, First(source, int64(b.N)), newPolicy(b, "stock"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(r.Engine.Decisions)/float64(b.N), "decisions/op")
}
