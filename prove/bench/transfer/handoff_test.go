package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/move/transceiver/handoff"
	"meridian/prove/bench"
)

func smallHandOff(t testing.TB) HandOffOptions {
	return HandOffOptions{
		Fabrics: []string{"tcp"}, Models: []string{"tiny"}, Tokens: []Tokens{{Count: 100, Text: "100"}},
		From: "tp=2,pp=1,block=16", To: "tp=1,pp=2,block=24,layout=LBNHC", Concurrent: []int{1}, Memory: size(t, "64MiB"), Rounds: 2,
		Dir: t.TempDir(), ServeCommand: serveCommand(t), Setting: bench.Setting{Version: "test"},
	}
}

// Every row is moved, compared and told in full, and nothing is left behind.
func TestHandOffRows(t *testing.T) {
	o := smallHandOff(t)
	o.Fabrics, o.Concurrent = []string{"tcp", "host"}, []int{1, 5}
	o.Models = []string{"tiny", "layers=3,latent=64,dtype=bf16"}
	seen := make(map[string]bool)
	o.Progress = func(p bench.Progress) { seen[p.String()] = true }
	report, err := RunHandOff(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[6/8] host tiny, 5 × 100 tokens of 4 layers: round 2 of 2, one by one"; !seen[want] {
		t.Errorf("no progress %q in %v", want, seen)
	}
	if len(report.Rows) != 8 {
		t.Fatalf("%d rows", len(report.Rows))
	}
	for _, row := range report.Rows {
		checkHandOffRow(t, row)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	var text, table bytes.Buffer
	if err := errors.Join(report.WriteJSON(&text), report.WriteText(&table)); err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []map[string]any }
	if err := json.Unmarshal(text.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		"fabric", "model", "layers", "tokens", "concurrent", "from", "to", "bytes", "seconds", "gbps", "min", "max", "plain", "plain_block",
		"ratio_plain", "share", "handshake_plan_p50_us", "pieces",
	} {
		if _, has := file.Rows[0][field]; !has {
			t.Errorf("a row has no %q: %s", field, text.String())
		}
	}
	if got := strings.Count(table.String(), "\n"); !strings.Contains(table.String(), "from tp=2,pp=1") || got < 8+4 {
		t.Errorf("%d lines:\n%s", got, table.String())
	}
}

func checkHandOffRow(t *testing.T, row HandOffRow) {
	t.Helper()
	bytesPerToken := uint64(4 * 2 * 2 * 32 * 4) // tiny: layers, K and V, heads, elements, float32
	if row.Model != "tiny" {
		bytesPerToken = 3 * 64 * 2
	}
	if want := uint64(row.Concurrent) * 100 * bytesPerToken; row.Bytes != want {
		t.Errorf("%v: %d bytes, want %d", row.Errand, row.Bytes, want)
	}
	s := row.Share
	if sum := s.Handshake + s.Plan + s.Prepare + s.Data + s.Verify; sum < 0.99 || sum > 1.01 {
		t.Errorf("%v: the shares %+v add up to %v", row.Errand, s, sum)
	}
	if (row.OneByOne != nil) != (row.Concurrent > 1) || (row.RatioOneByOne != nil) != (row.Concurrent > 1) {
		t.Errorf("%v: one by one %v", row.Errand, row.OneByOne)
	}
	if row.Min <= 0 || row.Plain.Min <= 0 || row.RatioPlain <= 0 || row.Seconds <= 0 || row.AgreedP50 <= 0 || row.Pieces <= 0 {
		t.Errorf("%+v", row)
	}
}

func TestShares(t *testing.T) {
	s, p50 := shares([]handoff.Record{
		{Stages: handoff.Times{Begun: 1000, Met: 1100, Planned: 1200, Moving: 1250, Moved: 1900, Ended: 2000}},
		{Stages: handoff.Times{Begun: 5000, Met: 5100, Planned: 5400, Moving: 5450, Moved: 5900, Ended: 6000}},
	})
	if want := (Shares{Handshake: 0.1, Plan: 0.2, Prepare: 0.05, Data: 0.55, Verify: 0.1}); s != want || p50 != 400 {
		t.Errorf("%+v, %v", s, p50)
	}
}

func openSmallRelay(t *testing.T) *relay {
	t.Helper()
	o := smallHandOff(t)
	o.Streams = 2
	r, err := openRelay(t.Context(), o, fabricByName("tcp"), Errand{Model: "tiny", Layers: 4, Tokens: 100, Concurrent: 2, From: o.From, To: o.To}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The comparison can fail: an empty destination, one wrong byte, two requests in
// each other's place, and a byte behind the last token.
func TestWrongCacheIsSeen(t *testing.T) {
	r := openSmallRelay(t)
	m := runner{r, true}
	if err := m.verify(t.Context()); !errors.Is(err, ErrContents) {
		t.Errorf("an empty destination: %v", err)
	}
	if _, err := m.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := m.verify(t.Context()); err != nil {
		t.Error(err)
	}
	for _, token := range []int{0, 99, 100} {
		wrong := vector{request: 1, layer: 3, part: 1, head: 1, token: token}
		if err := r.near.each(func(v vector, at []byte) error {
			if v == wrong {
				at[17] ^= 1
				defer func() { at[17] ^= 1 }()
				if err := m.verify(t.Context()); !errors.Is(err, ErrContents) {
					t.Errorf("a wrong byte of %+v went unseen: %v", v, err)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	tables := r.near.tables
	tables[0], tables[1] = tables[1], tables[0]
	if err := m.verify(t.Context()); !errors.Is(err, ErrContents) {
		t.Errorf("requests in each other's place: %v", err)
	}
	if err := r.CloseWithin(closeLimit); err != nil {
		t.Error(err)
	}
}

// When the prefill side dies the round ends at once and says so.
func TestPrefillSideDies(t *testing.T) {
	r := openSmallRelay(t)
	if err := syscall.Kill(r.child.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := (runner{r, true}).round(t.Context(), false); !errors.Is(err, bench.ErrGone) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > closeLimit {
		t.Errorf("it took %v", took)
	}
	_ = r.CloseWithin(closeLimit) // it says once more that the child was killed
}

func TestSizedDown(t *testing.T) {
	llama := Errand{Model: "llama-3.1-70b", Layers: 80, Tokens: 8192, Concurrent: 1, From: "tp=4", To: "tp=2,pp=2,block=64"}
	for name, c := range map[string]struct {
		concurrent     int
		limit          uint64
		layers, tokens int
	}{
		"all of it":    {1, 4 << 30, 80, 8192},
		"fewer layers": {1, 1 << 30, 32, 8192},
		"fewer tokens": {64, 1 << 30, 2, 2048},
	} {
		e := llama
		e.Concurrent = c.concurrent
		got, err := e.sizedDown(c.limit)
		if err != nil || got.Layers != c.layers || got.Tokens != c.tokens {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		fits, err := got.fits(c.limit)
		if err != nil || !fits {
			t.Errorf("%s does not fit: %v", name, err)
		}
	}
	if _, err := llama.sizedDown(1 << 10); err == nil {
		t.Error("a cache fits into a kibibyte")
	}
}

// What was left out is said.
func TestSizedDownIsSaid(t *testing.T) {
	o := smallHandOff(t)
	o.Tokens, o.Memory, o.Rounds = []Tokens{{Count: 1024, Text: "1k"}}, size(t, "1MiB"), 1
	report, err := RunHandOff(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if want := "tiny, 1 × 1k tokens: sized down to 3 of 4 layers and 512 tokens, so that either side fits into 1MiB"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
}

func TestHandOffsThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*HandOffOptions)
		says   string
	}{
		"fabric":     {func(o *HandOffOptions) { o.Fabrics = []string{"file"} }, `no fabric "file"; there is tcp, host`},
		"model":      {func(o *HandOffOptions) { o.Models = []string{"gpt-9"} }, "gpt-9"},
		"no tokens":  {func(o *HandOffOptions) { o.Tokens = nil }, "nothing to hand over"},
		"rounds":     {func(o *HandOffOptions) { o.Rounds = 0 }, "0 rounds"},
		"streams":    {func(o *HandOffOptions) { o.Streams = -1 }, "-1 streams"},
		"none":       {func(o *HandOffOptions) { o.Concurrent = []int{0} }, "0 hand-offs at a time"},
		"memory":     {func(o *HandOffOptions) { o.Memory = size(t, "4KiB") }, "4KiB of memory"},
		"side":       {func(o *HandOffOptions) { o.To = "tp=2,speed=9" }, `unknown name "speed"`},
		"context":    {func(o *HandOffOptions) { o.From = "tp=1,cp=2" }, "only tp and pp are measured"},
		"windows":    {func(o *HandOffOptions) { o.Models = []string{"gemma-3-27b"} }, "measure a model whose layers are alike"},
		"layout":     {func(o *HandOffOptions) { o.To = "tp=1,layout=LBHNDF" }, "only plain packings with whole vectors"},
		"types":      {func(o *HandOffOptions) { o.To = "tp=1,dtype=bf16" }, "bf16"},
		"stages":     {func(o *HandOffOptions) { o.To = "tp=1,pp=9" }, "pipeline stage 4 has 0 layers"},
		"fixed cuts": {func(o *HandOffOptions) { o.To, o.Memory, o.Tokens[0].Count = "pp=3+1", size(t, "1MiB"), 600 }, "with 3 of 4 layers: kv: impossible shape: pipeline stages [3 1]"},
	} {
		o := smallHandOff(t)
		c.change(&o)
		_, err := RunHandOff(t.Context(), o)
		if !errors.Is(err, bench.ErrOptions) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokens(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "1000": 1000, "8k": 8192, "32K": 32768} {
		var got Tokens
		if err := got.UnmarshalText([]byte(text)); err != nil || got.Count != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "k", "0", "-1", "1.5k", "1M", "99999999999k"} {
		var got Tokens
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got.Count)
		}
	}
}
