package entropy

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The vectors of testdata/probe are made by generate.py there, which shares no
// code with this package; its head says what the fields mean.

func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "probe", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

type rowVector struct {
	Name, DType, Hex string
	LCG              *struct {
		Seed      uint32
		Count     int
		Step      float32
		MaskEvery int `json:"mask_every"`
		Hot       []float32
	}
	Nats  *float64
	Error string
	Token *int
}

// logits are those of a row, as elements of T.
func logits[T Logit](t *testing.T, v *rowVector, element func(bytes []byte) T, size int) (row []T) {
	t.Helper()
	if v.LCG == nil {
		bytes, err := hex.DecodeString(v.Hex)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(bytes) > 0; bytes = bytes[size:] {
			row = append(row, element(bytes))
		}
		return row
	}
	state := v.LCG.Seed
	for i := range v.LCG.Count {
		state = 1664525*state + 1013904223
		x := (float32(state>>24) - 128) * v.LCG.Step
		if v.LCG.MaskEvery > 0 && i%v.LCG.MaskEvery == 0 {
			x = negativeInfinity
		}
		row = append(row, narrow[T](x))
	}
	if hot := v.LCG.Hot; hot != nil {
		row[int(hot[0])] = narrow[T](hot[1])
	}
	return row
}

func (v *rowVector) entropy(t *testing.T, f implementation) (float64, error) {
	switch v.DType {
	case "fp32":
		return entropyBy(f, logits(t, v, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }, 4))
	case "bf16":
		return entropyBy(f, logits(t, v, func(b []byte) BF16 { return BF16(binary.LittleEndian.Uint16(b)) }, 2))
	case "fp16":
		return entropyBy(f, logits(t, v, func(b []byte) F16 { return F16(binary.LittleEndian.Uint16(b)) }, 2))
	}
	t.Fatalf("%s: dtype %s", v.Name, v.DType)
	return 0, nil
}

func TestEntropyVectors(t *testing.T) {
	var file struct {
		Tolerance float64
		Rows      []rowVector
	}
	readVectors(t, "entropies.json", &file)
	kinds := map[string]error{"nan": ErrNaN, "infinite": ErrInfinite, "masked": ErrMasked, "empty": ErrEmpty}
	worst := 0.0
	for _, v := range file.Rows {
		for _, f := range available() {
			got, err := v.entropy(t, f)
			if v.Nats == nil {
				said := v.Token == nil || err != nil && strings.Contains(err.Error(), "token "+strconv.Itoa(*v.Token)+" of ")
				if !errors.Is(err, kinds[v.Error]) || !said {
					t.Errorf("%s, %s, %v: %v, want %s", v.Name, v.DType, f, err, v.Error)
				}
				continue
			}
			if err != nil || !(math.Abs(got-*v.Nats) <= file.Tolerance) {
				t.Errorf("%s, %s, %v: %v (%v), want %v", v.Name, v.DType, f, got, err, *v.Nats)
			}
			worst = max(worst, math.Abs(got-*v.Nats))
		}
	}
	if len(file.Rows) < 60 || file.Tolerance > tolerance {
		t.Errorf("%d rows, tolerance %v", len(file.Rows), file.Tolerance)
	}
	t.Logf("%d rows, the farthest %.1e nats off", len(file.Rows), worst)
}

type traceVector struct {
	Name       string
	Alpha      float64 `json:"ema_alpha"`
	Variance   float64 `json:"eat_ema_variance_threshold"`
	RPDI       float64 `json:"rpdi_threshold"`
	Transition float64 `json:"transition_entropy_threshold"`
	MinThink   int     `json:"min_think_tokens"`
	Steps      [][]any
	Reasons    [][2]any
	Signals    []signalVector
}

type signalVector struct {
	Step        int
	Entropy     *float64
	EAT         *float64
	EATMean     *float64 `json:"eat_ema"`
	EATVariance *float64 `json:"eat_ema_variance"`
	EATWarm     bool     `json:"eat_warm"`
	RPDI        *float64
	Local       *float64 `json:"rpdi_local"`
	Global      *float64 `json:"rpdi_global"`
	Transitions int
}

func TestEstimatorVectors(t *testing.T) {
	var file struct {
		Tolerance float64
		Window    int
		Traces    []traceVector
	}
	readVectors(t, "estimators.json", &file)
	if file.Window != Window || len(file.Traces) == 0 {
		t.Fatalf("a window of %d, %d traces", file.Window, len(file.Traces))
	}
	seen := map[string]int{}
	for _, v := range file.Traces {
		e := estimator(t, Options{
			Alpha: v.Alpha, EATVariance: v.Variance, EATInterval: 1, RPDI: v.RPDI, Transition: v.Transition, MinThinkTokens: v.MinThink,
		})
		reasons, signals := v.Reasons, v.Signals
		for i, step := range v.Steps {
			reason := take(e, step)
			want := None.String()
			if len(reasons) > 0 && reasons[0][0].(float64) == float64(i) {
				want, reasons = reasons[0][1].(string), reasons[1:]
			}
			if reason.String() != want {
				t.Fatalf("%s, step %d: %v, want %s", v.Name, i, reason, want)
			}
			seen[want]++
			for len(signals) > 0 && signals[0].Step == i {
				if field := signals[0].differs(e.Signal(), file.Tolerance); field != "" {
					t.Fatalf("%s, step %d: %s of %+v, want %+v", v.Name, i, field, e.Signal(), signals[0])
				}
				signals = signals[1:]
			}
		}
		if len(reasons)+len(signals) > 0 {
			t.Errorf("%s: %d reasons and %d signals were not reached", v.Name, len(reasons), len(signals))
		}
	}
	if seen["converged"] == 0 || seen["overthinking"] == 0 {
		t.Errorf("reasons seen: %v", seen)
	}
}

func take(e *Estimator, step []any) Reason {
	switch step[0] {
	case "token":
		return e.Token(step[1].(float64), step[2].(bool))
	case "fork":
		return e.Forked(step[1].(float64))
	}
	e.Miss(1)
	return None
}

// differs names the first field that is not as it should be.
func (v *signalVector) differs(s Signal, tolerance float64) string {
	for _, c := range []struct {
		name  string
		want  *float64
		got   float64
		known bool
	}{
		{"eat_ema", v.EATMean, s.EAT.Mean, s.EAT.Values > 0},
		{"eat_ema_variance", v.EATVariance, s.EAT.Variance, s.EAT.Values > 0},
		{"rpdi", v.RPDI, s.RPDI, s.RPDIKnown},
		{"rpdi_local", v.Local, s.Local, s.MeansKnown},
		{"rpdi_global", v.Global, s.Global, s.MeansKnown},
	} {
		if (c.want != nil) != c.known || c.known && !(math.Abs(c.got-*c.want) <= tolerance) || !c.known && c.got != 0 {
			return c.name
		}
	}
	if v.EATWarm != s.EATWarm {
		return "eat_warm"
	}
	if v.Transitions != s.Transitions {
		return "transitions"
	}
	return ""
}

// TestWarmUpOfDecimals: 4/alpha as people write alpha, not as binary rounds it.
func TestWarmUpOfDecimals(t *testing.T) {
	for hundredths := 1; hundredths <= 100; hundredths++ {
		if got, want := WarmUp(float64(hundredths)/100), (400+hundredths-1)/hundredths; got != want {
			t.Errorf("alpha 0.%02d: %d, want %d", hundredths, got, want)
		}
	}
}

// The least weights warm up long, and never for a negative number of values.
func TestWarmUpOfTinyWeights(t *testing.T) {
	for _, alpha := range []float64{MinAlpha, 1e-30, 5e-324, 0} {
		if got := WarmUp(alpha); got != 4000 {
			t.Errorf("alpha %g: %d", alpha, got)
		}
	}
}
