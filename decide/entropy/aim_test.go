package entropy_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/decide/entropy"
	"meridian/internal/rounds"
)

const (
	vocabulary = 151_936 // Qwen3's
	rowsAlike  = 64      // of a round, each read once: more than the near caches hold
)

// rowNanoseconds is what a row of bf16 may take, with the instructions of the
// processor, for a vocabulary of 151,936.
const rowNanoseconds = 100_000

// BenchmarkAim is rows of logits beside the definition in float64, and beside torch where that
// is at hand. Every entropy is checked.
func BenchmarkAim(b *testing.B) {
	torch, absent := openTorch(cmp.Or(os.Getenv("MERIDIAN_PEERS_DIR"), "../../.peers"))
	if torch != nil {
		defer torch.close()
	}
	var judge rounds.Judge
	for dtype, task := range aims(vocabulary, rowsAlike) {
		b.Run(task.Name(), func(b *testing.B) { judge.Run(b, task) })
		b.Run(task.What+"/beside=torch", func(b *testing.B) {
			if torch == nil {
				b.Skipf("torch is absent: %v; to have it: make vllm", absent)
			}
			name, err := torch.beside(&task, dtype, vocabulary, rowsAlike)
			if err != nil {
				b.Fatal(err)
			}
			b.Log(name)
			judge.Run(b, task)
		})
	}
	b.Run("EAT and RPDI, a token", func(b *testing.B) { judge.Run(b, estimatorAim(b)) })
	judge.Verdict(b)
}

// aims are rows of every dtype.
func aims(vocabulary, rows int) iter.Seq2[string, rounds.Task] {
	row := vocabularyRow(vocabulary)
	bf16 := rowAim("bf16", row, rows, func(x float32) entropy.BF16 { return entropy.BF16(math.Float32bits(x) >> 16) })
	if entropy.Name() != "portable" {
		bf16.Bound = rowNanoseconds
	}
	return func(yield func(string, rounds.Task) bool) {
		_ = yield("bf16", bf16) && yield("fp16", rowAim("fp16", row, rows, halfOf)) &&
			yield("fp32", rowAim("fp32", row, rows, func(x float32) float32 { return x }))
	}
}

func TestAims(t *testing.T) {
	for _, task := range aims(3000, 64) {
		if allocations, err := rounds.Once(task); err != nil || allocations > 0.2 { // the runtime has its own, now and then
			t.Errorf("%s allocates %v times, %v", task.What, allocations, err)
		}
	}
	if allocations, err := rounds.Once(estimatorAim(t)); err != nil || allocations > 0.2 {
		t.Errorf("a token allocates %v times, %v", allocations, err)
	}
}

// Without rows there is nothing to measure.
func TestAimOfNoRow(t *testing.T) {
	for _, task := range aims(64, 0) {
		if _, err := rounds.Once(task); !errors.Is(err, rounds.ErrNothing) {
			t.Errorf("%s: %v", task.What, err)
		}
	}
}

func TestTorchIsAbsent(t *testing.T) {
	dir := t.TempDir()
	if torch, absent := openTorch(dir); torch != nil || !strings.Contains(absent.Error(), "it is not in "+dir) {
		t.Errorf("%v, %v", torch, absent)
	}
}

// What stands in torch's place and does not work is an absence with its words, not a failure.
func TestBrokenTorch(t *testing.T) {
	python := filepath.Join(t.TempDir(), "vllm", "bin", "python")
	if err := os.MkdirAll(filepath.Dir(python), 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nread line\necho '{\"error\": \"no module named torch\"}'\ncat >/dev/null\n"
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	peers := filepath.Dir(filepath.Dir(filepath.Dir(python)))
	if torch, absent := openTorch(peers); torch != nil || !strings.Contains(absent.Error(), "no module named torch") {
		t.Errorf("%v, %v", torch, absent)
	}
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

// rowAim measures rows that lie one behind the other, each once.
func rowAim[T entropy.Logit](dtype string, row []float32, count int, narrow func(float32) T) rounds.Task {
	rows := make([][]T, count)
	for r := range rows {
		rows[r] = make([]T, len(row))
		for i := range row {
			rows[r][(i+r)%len(row)] = narrow(row[i])
		}
	}
	want := definition(row)
	return rounds.Task{
		What: fmt.Sprintf("%s, %d logits, %s", dtype, len(row), entropy.Name()),
		Ours: func() (rounds.Lap, error) {
			start := time.Now()
			for _, row := range rows {
				if got, err := entropy.Entropy(row); err != nil || math.Abs(got-want) > 1e-5 {
					return rounds.Lap{}, fmt.Errorf("wrong: an entropy of %v (%w), by the definition %v", got, err, want)
				}
			}
			return rounds.Lap{Operations: len(rows), Took: time.Since(start)}, nil
		},
		Beside: "definition",
		Theirs: func() (rounds.Lap, error) {
			start := time.Now()
			for range min(len(rows), 4) {
				definition(row)
			}
			return rounds.Lap{Operations: min(len(rows), 4), Took: time.Since(start)}, nil
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

// estimatorAim measures what a think token costs once its entropy is known.
func estimatorAim(t testing.TB) rounds.Task {
	const tokens = 1 << 20
	options := entropy.Options{Alpha: 0.05, EATVariance: 1e-9, EATInterval: 32, RPDI: 3, Transition: 2.5, MinThinkTokens: 512}
	if err := options.Check(); err != nil {
		t.Fatal(err)
	}
	return rounds.Task{
		What: "EAT and RPDI, a token",
		Ours: func() (rounds.Lap, error) {
			e, err := entropy.NewEstimator(&options)
			if err != nil {
				return rounds.Lap{}, err
			}
			start := time.Now()
			for i := range tokens {
				nats := float64(i%7) / 7
				if reason := e.Token(nats, i%8 == 0); reason != entropy.None {
					return rounds.Lap{}, fmt.Errorf("wrong: %v after %d steady tokens", reason, i)
				}
				if e.ForkDue(i%16 == 0) {
					e.Forked(nats)
				}
			}
			return rounds.Lap{Operations: tokens, Took: time.Since(start)}, nil
		},
	}
}

// torchProcess is torch in a process of its own, on one thread: a JSON object a line in, one a
// line out.
type torchProcess struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// openTorch starts torch where it is at hand, or says why it is not.
func openTorch(peers string) (_ *torchProcess, absent error) {
	python := filepath.Join(peers, "vllm", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return nil, errors.New("it is not in " + filepath.Join(peers, "vllm"))
	}
	p := &torchProcess{command: exec.Command(python, filepath.Join("testdata", "torch_peer.py"))}
	p.command.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	p.command.Stderr = os.Stderr
	var err error
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	if _, err := p.ask(map[string]any{"do": "open", "dtype": "fp32", "vocabulary": 64, "rows": 1}); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *torchProcess) close() {
	p.in.Close()
	_ = p.command.Wait()
}

type torchAnswer struct {
	Error, Name string
	Nats        float64
	NS          int64
}

func (p *torchProcess) ask(request map[string]any) (answer torchAnswer, err error) {
	if err := json.NewEncoder(p.in).Encode(request); err != nil {
		return answer, err
	}
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}

// beside has torch compute the same rows after each of our rounds, and names the fastest of
// what people write in it.
func (p *torchProcess) beside(task *rounds.Task, dtype string, vocabulary, rows int) (name string, err error) {
	opened, err := p.ask(map[string]any{"do": "open", "dtype": dtype, "vocabulary": vocabulary, "rows": rows})
	if err != nil {
		return "", err
	}
	// torch sums in fp32: it is not held to our tolerance, but to the same row.
	if want := definition(vocabularyRow(vocabulary)); math.Abs(opened.Nats-want) > 1e-3 {
		return "", fmt.Errorf("wrong: torch has %v for a row of %s, by the definition %v", opened.Nats, dtype, want)
	}
	task.Theirs = func() (rounds.Lap, error) {
		lap, err := p.ask(map[string]any{"do": "lap"})
		return rounds.Lap{Operations: rows, Took: time.Duration(lap.NS)}, err
	}
	return opened.Name, nil
}
