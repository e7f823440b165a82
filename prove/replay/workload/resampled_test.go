package workload

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// counted is a trace of a request a second for four minutes. Its prompts tell
// which is which, and all build on one beginning.
func counted(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(header)
	for i := range 240 {
		fmt.Fprintf(&b, `{"at_us":%d,"prompt":%d,"output":1,"prefix":[7,%d]}`+"\n", 1_000_000*i, 1000+i, 100+i/10)
	}
	return write(t, "counted.jsonl", b.String())
}

// Each seed draws other requests, all of them from the window, at any scale, at
// the rate that the window has.
func TestResampledStaysInItsWindow(t *testing.T) {
	file := counted(t)
	for _, scale := range []float64{0.25, 1, 3} {
		o := Options{Seed: 1, Start: time.Minute, Duration: 2 * time.Minute, Scale: scale, Resample: true}
		first, info := collect(t, file, o)
		if again, _ := collect(t, file, o); !reflect.DeepEqual(first, again) {
			t.Errorf("scale %v: the same seed gives other requests", scale)
		}
		if info.Duration != 2*time.Minute || info.Rate != scale {
			t.Errorf("scale %v: %+v", scale, info)
		}
		sum := 0
		const seeds = 40
		for seed := range uint64(seeds) {
			o.Seed = seed + 2
			all, _ := collect(t, file, o)
			if reflect.DeepEqual(first, all) {
				t.Errorf("scale %v: seed %d gives the requests of seed 1", scale, o.Seed)
			}
			sum += len(all)
			for _, r := range all {
				if r.Prompt < 1060 || r.Prompt >= 1180 {
					t.Fatalf("scale %v: a request of second %d, outside the window from 60 to 180", scale, r.Prompt-1000)
				}
			}
		}
		near(t, fmt.Sprintf("requests at scale %v", scale), float64(sum)/seeds, 120*scale, 0.03)
	}
}

// A part comes as often as it was drawn, and requests that build on one another
// come in the order of the trace.
func TestResampledKeepsPrefixesInOrder(t *testing.T) {
	repeated := 0
	for seed := range uint64(20) {
		all, _ := collect(t, counted(t), Options{Seed: seed, Resample: true})
		latest, seen := map[uint64]int32{}, map[int32][]uint64{}
		for _, r := range all {
			for _, name := range r.Prefix {
				if r.Prompt <= latest[name] {
					t.Fatalf("seed %d: prompt %d comes after %d, on which it builds", seed, r.Prompt, latest[name])
				}
				latest[name] = r.Prompt
			}
			if before, again := seen[r.Prompt]; again {
				repeated++
				if before[0] == r.Prefix[0] || before[1] == r.Prefix[1] {
					t.Fatalf("seed %d: prompt %d comes twice with one name", seed, r.Prompt)
				}
			}
			seen[r.Prompt] = r.Prefix
		}
	}
	if repeated == 0 {
		t.Error("nothing was drawn twice")
	}
}

// A trace that ends within the window ends the window, and the parts of one that
// goes on are drawn from what was asked for.
func TestResampledLength(t *testing.T) {
	file := counted(t)
	for asked, want := range map[time.Duration]time.Duration{
		0: 239*time.Second + 239*time.Second/240, time.Hour: 239*time.Second + 239*time.Second/240, time.Minute: time.Minute,
	} {
		if _, info := collect(t, file, Options{Duration: asked, Resample: true}); info.Duration != want {
			t.Errorf("asked for %v: a window of %v, want %v", asked, info.Duration, want)
		}
	}
	one := write(t, "one.jsonl", header+`{"at_us":0,"prompt":9,"output":3}`+"\n")
	if all, _ := collect(t, one, Options{Resample: true, Scale: 5}); len(all) == 0 {
		t.Error("nothing of a trace of one request")
	}
	if _, _, err := Open(file, Options{Resample: true, Scale: 1e12}); err == nil || !strings.Contains(err.Error(), "scale 1e+12 needs") {
		t.Errorf("a scale that no trace has parts for: %v", err)
	}
}
