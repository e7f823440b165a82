package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrOptions is the error of a name or of options that make no workload.
var ErrOptions = errors.New("workload: bad options")

// Options choose a part of a workload and how dense it is.
type Options struct {
	// DataDir holds the public traces; without it, the small generated samples
	// that ship with this package stand in, and Info says so.
	DataDir string
	// Seed makes everything that is drawn.
	Seed uint64
	// Scale multiplies the rate of arrivals; 0 is 1. Recorded arrivals come
	// closer together, or further apart; drawn ones are drawn at that rate.
	Scale float64
	// Start is where in the workload's own time, that of the recorded day for
	// one, the chosen window begins. Training and held-out hours differ by it.
	Start time.Duration
	// Duration is for how long requests arrive, after Scale; 0 is as long as
	// the workload goes on, and 30 seconds where it never ends.
	Duration time.Duration
	// Resample draws parts of a recorded trace by Seed, with repetition, so that
	// every seed is another hour as it might have been. The window is Duration of
	// the trace's own time then, whatever the scale, and requests arrive for as
	// long. What is drawn in any case is not changed by it.
	Resample bool
	// Coupling says how ServeGen's marginals are joined.
	Coupling Coupling
	// Synthetic has the knobs of what arrives by chance.
	Synthetic Mix
}

// Info says what a workload is.
type Info struct {
	// Name is what it was opened by; Label a line for people.
	Name  string `json:"name"`
	Label string `json:"label"`
	// Licence is that of the data, empty where there is none.
	Licence string `json:"licence,omitempty"`
	// Synthetic is true where lengths or arrivals were made up, or come from
	// more than one source; Sample where the generated stand-in was used.
	Synthetic bool `json:"synthetic"`
	Sample    bool `json:"sample"`
	// Duration is that of the chosen window, after scaling.
	Duration time.Duration `json:"duration_ns"`
	// Rate is the mean number of requests a second in that window, after
	// scaling: exact where requests are recorded, expected where drawn.
	Rate float64 `json:"requests_per_second"`
	// MeanPrompt, MeanThink and MeanOutput are tokens a request.
	MeanPrompt float64 `json:"mean_prompt"`
	MeanThink  float64 `json:"mean_think"`
	MeanOutput float64 `json:"mean_output"`
	// Tenants is how many there are: every Tenant is below it.
	Tenants int32 `json:"tenants"`
}

// kinds are the workloads by name. A file of requests is opened by its path.
var kinds = []struct {
	name string
	open func(opening) (Source, Info, error)
}{
	{"servegen-r1", openServeGen},
	{"servegen-r1-independent", func(o opening) (Source, Info, error) {
		o.Coupling = Independent
		return openServeGen(o)
	}},
	{"mooncake-conversation", func(o opening) (Source, Info, error) { return openMooncake(o, "conversation") }},
	{"mooncake-synthetic", func(o opening) (Source, Info, error) { return openMooncake(o, "synthetic") }},
	{"azure-code", func(o opening) (Source, Info, error) { return openAzure(o, "code") }},
	{"azure-conv", func(o opening) (Source, Info, error) { return openAzure(o, "conv") }},
	{"synthetic", openSynthetic},
	{"sharegpt", openShareGPT},
	{"math500", openMath500},
}

// Names lists the workloads that are opened by name.
func Names() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// opening is what a workload is opened with: checked options, and the data.
type opening struct {
	Options
	data   fs.FS
	sample bool
}

// Open opens a workload: one of Names; the path of a file that ends with
// .jsonl; or A+B, the arrivals and prompts of A with the thoughts and answers
// of B, which is synthetic whatever A and B are.
func Open(name string, o Options) (Source, Info, error) {
	if o.Scale == 0 {
		o.Scale = 1
	}
	switch {
	case !(o.Scale > 0) || math.IsInf(o.Scale, 0):
		return nil, Info{}, fmt.Errorf("%w: scale %g is not a positive number", ErrOptions, o.Scale)
	case o.Start < 0 || o.Duration < 0:
		return nil, Info{}, fmt.Errorf("%w: the window starts at %v and lasts %v; neither may be negative", ErrOptions, o.Start, o.Duration)
	case o.Coupling > Independent:
		return nil, Info{}, fmt.Errorf("%w: there is no coupling %d", ErrOptions, o.Coupling)
	}
	source, info, err := open(name, o)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && o.DataDir != "" {
			err = fmt.Errorf("%w in %s: docs/workloads.md lists what a folder of traces holds", err, o.DataDir)
		}
		return nil, Info{}, fmt.Errorf("workload %s: %w", name, err)
	}
	info.Name = name
	return &settling{Source: source, dice: stream(o.Seed, streamConvergence, 0, 0)}, info, nil
}

func open(name string, o Options) (Source, Info, error) {
	data, sample := samples, true
	if o.DataDir != "" {
		data, sample = os.DirFS(o.DataDir), false
	}
	// A file's own name may have a plus.
	if arrivals, lengths, both := strings.Cut(name, "+"); both && (isFile(arrivals) || slices.Contains(Names(), arrivals)) {
		return openMixed(arrivals, lengths, o)
	}
	if isFile(name) {
		return openFile(opening{Options: o, data: os.DirFS(filepath.Dir(name))}, filepath.Base(name))
	}
	for _, k := range kinds {
		if k.name == name {
			return k.open(opening{Options: o, data: data, sample: sample})
		}
	}
	return nil, Info{}, fmt.Errorf("%w: there is no such workload; there are %s, and files that end with .jsonl",
		ErrOptions, strings.Join(Names(), ", "))
}

func isFile(name string) bool { return strings.HasSuffix(name, ".jsonl") }
