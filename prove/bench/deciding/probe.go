package deciding

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"meridian/decide/entropy"
	"meridian/prove/bench"
)

// ProbeOptions is what RunProbe measures.
type ProbeOptions struct {
	Options
	Vocabulary, Rows int
	// PeersDir is where torch may be, in the environment that vLLM has.
	PeersDir string
}

// rowNanoseconds is what a row of bf16 may take, with the instructions of the
// processor, for a vocabulary of 151,936.
const rowNanoseconds = 100_000

// RunProbe measures entropies of rows of logits beside torch, or, where that is
// not at hand, beside the definition in float64.
func RunProbe(ctx context.Context, o ProbeOptions) (_ *Report, err error) {
	if o.Vocabulary < 64 || o.Vocabulary > 1<<21 || o.Rows < 1 || o.Rows > 4096 {
		return nil, fmt.Errorf("%w: %d rows of %d logits; 1 to 4096 of 64 to %d", bench.ErrOptions, o.Rows, o.Vocabulary, 1<<21)
	}
	torch, absence := openTorch(ctx, o)
	if torch != nil {
		defer func() { err = errors.Join(err, torch.process.Stop(context.WithoutCancel(ctx))) }()
		o.children = append(o.children, torch.process.PID())
	}
	row := vocabularyRow(o.Vocabulary)
	tasks := []Task{
		probeTask(o, "bf16", row, func(x float32) entropy.BF16 { return entropy.BF16(math.Float32bits(x) >> 16) }),
		probeTask(o, "fp16", row, halfOf),
		probeTask(o, "fp32", row, func(x float32) float32 { return x }),
	}
	if entropy.Name() != "portable" && o.Vocabulary == 151_936 {
		tasks[0].Bound = rowNanoseconds
	}
	for i, dtype := range []string{"bf16", "fp16", "fp32"} {
		if torch == nil {
			break
		}
		if err := torch.beside(ctx, &tasks[i], dtype, row); err != nil {
			return nil, err
		}
	}
	estimators, err := estimatorTask()
	if err != nil {
		return nil, err
	}
	r, err := Measure(ctx, o.Options, append(tasks, estimators))
	if r != nil && absence != nil {
		r.Absent = append(r.Absent, *absence)
	}
	return r, err
}

// vocabularyRow is the row that testdata/probe calls a vocabulary: eighths, which
// every dtype has exactly.
func vocabularyRow(n int) []float32 {
	row, state := make([]float32, n), uint32(1)
	for i := range row {
		state = 1664525*state + 1013904223
		row[i] = (float32(state>>24) - 128) * 0.125
	}
	return row
}

// halfOf is exact for eighths below 16.
func halfOf(x float32) entropy.F16 {
	bits := math.Float32bits(x)
	if x == 0 {
		return 0
	}
	return entropy.F16(bits>>16&0x8000 | (bits>>13&0x3ffff - (127-15)<<10))
}

// probeTask measures rows that lie one behind the other, each once: more than the
// near caches hold.
func probeTask[T entropy.Logit](o ProbeOptions, dtype string, row []float32, narrow func(float32) T) Task {
	rows := make([][]T, o.Rows)
	for r := range rows {
		rows[r] = make([]T, len(row))
		for i := range row {
			rows[r][(i+r)%len(row)] = narrow(row[i])
		}
	}
	want := definition(row)
	return Task{
		What: fmt.Sprintf("entropy, %s, %d logits, %s", dtype, o.Vocabulary, entropy.Name()),
		Ours: func() (Lap, error) {
			start := time.Now()
			for _, row := range rows {
				if got, err := entropy.Entropy(row); err != nil || math.Abs(got-want) > 1e-5 {
					return Lap{}, fmt.Errorf("wrong: an entropy of %v (%w), by the definition %v", got, err, want)
				}
			}
			return Lap{len(rows), time.Since(start)}, nil
		},
		Beside: "the definition in float64",
		Theirs: func() (Lap, error) {
			start := time.Now()
			for range min(len(rows), 4) {
				definition(row)
			}
			return Lap{min(len(rows), 4), time.Since(start)}, nil
		},
	}
}

// definition is the entropy as it is defined.
func definition(row []float32) float64 {
	most, total, h := math.Inf(-1), 0.0, 0.0
	for _, x := range row {
		most = max(most, float64(x))
	}
	for _, x := range row {
		total += math.Exp(float64(x) - most)
	}
	for _, x := range row {
		p := math.Exp(float64(x)-most) / total
		h -= p * math.Log(p)
	}
	return h
}

// estimatorTask measures what a think token costs once its entropy is known.
func estimatorTask() (Task, error) {
	const tokens = 1 << 20
	e, err := entropy.NewEstimator(&entropy.Options{Alpha: 0.05, EATVariance: 1e-9, EATInterval: 32, RPDI: 3, Transition: 2.5, MinThinkTokens: 512})
	return Task{
		What: "EAT and RPDI, a token",
		Ours: func() (Lap, error) {
			e.Reset()
			start := time.Now()
			for i := range tokens {
				nats := float64(i%7) / 7
				if reason := e.Token(nats, i%8 == 0); reason != entropy.None {
					return Lap{}, fmt.Errorf("wrong: %v after %d steady tokens", reason, i)
				}
				if e.ForkDue(i%16 == 0) {
					e.Forked(nats)
				}
			}
			return Lap{tokens, time.Since(start)}, nil
		},
	}, err
}

//go:embed peers/torch_peer.py
var torchPeer string

// torchRows is torch in a process of its own, on one thread.
type torchRows struct {
	process *bench.Process
	options ProbeOptions
}

// openTorch starts torch where it is at hand, or says why it is not.
func openTorch(ctx context.Context, o ProbeOptions) (*torchRows, *bench.Absence) {
	absent := func(why string) (*torchRows, *bench.Absence) {
		return nil, &bench.Absence{Peer: "torch", Why: why, Fix: "make vllm"}
	}
	python := filepath.Join(o.PeersDir, "vllm", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return absent("it is not in " + filepath.Join(o.PeersDir, "vllm"))
	}
	p, err := bench.StartProcess("torch", []string{python, "-c", torchPeer}, []string{"OMP_NUM_THREADS=1"})
	if err != nil {
		return absent(err.Error())
	}
	t := &torchRows{p, o}
	if _, err := t.open(ctx, "fp32", 64, 1); err != nil {
		return absent(errors.Join(err, p.Stop(context.WithoutCancel(ctx))).Error())
	}
	return t, nil
}

type torchOpened struct {
	Name string
	Nats float64
}

func (t *torchRows) open(ctx context.Context, dtype string, vocabulary, rows int) (opened torchOpened, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err = t.process.Ask(ctx, map[string]any{"do": "open", "dtype": dtype, "vocabulary": vocabulary, "rows": rows}, &opened)
	return opened, err
}

// beside has torch compute the same rows after each of our rounds.
func (t *torchRows) beside(ctx context.Context, task *Task, dtype string, row []float32) error {
	opened := false
	first, err := t.open(ctx, dtype, len(row), 1)
	if err != nil {
		return err
	}
	// torch sums in fp32: it is not held to our tolerance, but to the same row.
	if want := definition(row); math.Abs(first.Nats-want) > 1e-3 {
		return fmt.Errorf("wrong: torch has %v for a row of %s, by the definition %v", first.Nats, dtype, want)
	}
	task.Beside = first.Name
	task.Theirs = func() (Lap, error) {
		if !opened { // rows of one dtype at a time are in its memory
			if _, err := t.open(ctx, dtype, len(row), t.options.Rows); err != nil {
				return Lap{}, err
			}
			opened = true
		}
		var lap struct{ NS int64 }
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		err := t.process.Ask(ctx, map[string]any{"do": "lap"}, &lap)
		return Lap{t.options.Rows, time.Duration(lap.NS)}, err
	}
	return nil
}
