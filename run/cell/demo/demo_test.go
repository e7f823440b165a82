package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"meridian/run/cell/openaiclient"
	"meridian/see/ledger"
	"meridian/serve/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oracle answers every prompt with tokens that follow from it, and keeps
// records as a gateway does.
type oracle struct {
	t      *testing.T
	dir    string // for records; none where empty
	kv     string // where caches come from
	change func(n int, tokens []uint32) []uint32
	refuse int // the prompt that gets an error, from 1
	handed int // tokens that it says it took for each prompt

	mu sync.Mutex // protects asked and the records
	n  int
}

func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		o.t.Error(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	id := fmt.Sprintf("%032d", o.n)
	if o.n == o.refuse {
		openai.Unavailable("no engine is left").Write(w)
		return
	}
	hash := fnv.New32a()
	_, _ = hash.Write(bytes.Join([][]byte{body["prompt"], body["messages"], body["seed"]}, nil))
	tokens := []uint32{hash.Sum32(), hash.Sum32() + 1, hash.Sum32() + 2}
	if o.change != nil {
		tokens = o.change(o.n, tokens)
	}
	o.record(id, string(body["stream"]) == "true")
	w.Header().Set(openaiclient.RequestIDHeader, id)
	list, _ := json.Marshal(tokens)
	choice := fmt.Sprintf(`{"choices":[{"text":"x","delta":{},"finish_reason":"length","token_ids":%s}],"prompt_token_ids":[1]}`, list)
	if string(body["stream"]) == "true" {
		choice = "data: " + choice + "\n\ndata: [DONE]\n\n"
	}
	fmt.Fprint(w, choice)
}

func (o *oracle) received(context.Context) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int64(1000 + o.handed*o.n), nil
}

func (o *oracle) record(id string, stream bool) {
	if o.dir == "" {
		return
	}
	line, err := json.Marshal(ledger.Record{
		ID: id, Stream: stream, Outcome: ledger.Finished, Latency: ledger.Latency{TTFTMs: 7, TotalMs: float64(o.n)},
		Legs: []ledger.Leg{{Kind: ledger.PrefillLeg, KV: "local"}, {Kind: ledger.DecodeLeg, Engine: "begins", KV: o.kv, KVReason: "it is short"}},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(o.dir, ledger.FileName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		o.t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "%s\n", line)
}

func (o *oracle) open(t *testing.T) *openaiclient.Client {
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &openaiclient.Client{URL: server.URL}
}

func play(t *testing.T, cell, alone *oracle) (*Report, error) {
	t.Helper()
	cell.t, alone.t, cell.dir = t, t, t.TempDir()
	told := 0
	r, err := Run(t.Context(), Options{
		Gateway: cell.open(t), StateDir: cell.dir, Model: "m", MaxTokens: 512, Reasoning: true,
		Alone: func(context.Context) (*openaiclient.Client, error) { return alone.open(t), nil },
		Tell:  func(Stage) { told++ }, Received: cell.received,
	})
	if err == nil && told != 2*r.Prompts {
		t.Errorf("told %d times of %d prompts", told, r.Prompts)
	}
	return r, err
}

func TestEqual(t *testing.T) {
	r, err := play(t, &oracle{kv: "handoff"}, &oracle{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "parity: equal (40 prompts, 120 tokens)"; r.Verdict() != want || !r.Equal() {
		t.Errorf("%s, want %s", r.Verdict(), want)
	}
	if r.HandedOver != 40 || r.Local != 0 {
		t.Errorf("%+v", r)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"40 handed over", "TTFT    7.0    7.0    7.0         23\n", "total   20.0   36.0   40.0         40\n", "hand-off      –      –      –          0\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestDifferent(t *testing.T) {
	for name, change := range map[string]func(int, []uint32) []uint32{
		"another token": func(n int, tokens []uint32) []uint32 { tokens[1] += uint32(n / 40); return tokens },
		"a token short": func(n int, tokens []uint32) []uint32 { return tokens[:3-n/40] },
		"a token more":  func(n int, tokens []uint32) []uint32 { return append(tokens, make([]uint32, n/40)...) },
	} {
		t.Run(name, func(t *testing.T) {
			r, err := play(t, &oracle{kv: "handoff", change: change}, &oracle{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Equal() || !strings.HasPrefix(r.Verdict(), "parity: DIFFERENT in 1 of 40 prompts; first in prompt ") {
				t.Error(r.Verdict())
			}
		})
	}
}

func TestNothingHandedOverIsNoDemo(t *testing.T) {
	for _, kv := range []string{"local", "cached", ""} {
		r, err := play(t, &oracle{kv: kv}, &oracle{})
		if !errors.Is(err, ErrNoHandOff) || r == nil || r.HandedOver != 0 {
			t.Errorf("%q: %+v, %v", kv, r, err)
		}
	}
}

// An engine that says nothing of single requests is believed when it counts.
func TestCountedHandOffs(t *testing.T) {
	r, err := play(t, &oracle{handed: 7}, &oracle{})
	if err != nil || r.Untold != 40 || r.Local != 0 || r.HandedTokens != 280 {
		t.Fatalf("%+v, %v", r, err)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "40 more went by a prefill worker; their engines tell only that decode took 280 tokens") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// A conversation goes on at a worker that did not begin it, until one has found what
// the first computed; its answer is compared, too.
func TestSecondTurn(t *testing.T) {
	for name, c := range map[string]struct {
		foundAt int // the try that finds something, from 1
		change  func(int, []uint32) []uint32
		want    error
		equal   bool
	}{
		"at once":        {foundAt: 1, equal: true},
		"the third time": {foundAt: 3, equal: true},
		"never":          {foundAt: 4, want: ErrNotFound},
		"wrong tokens":   {foundAt: 1, change: func(_ int, tokens []uint32) []uint32 { tokens[2]++; return tokens }},
	} {
		t.Run(name, func(t *testing.T) {
			cell, other, alone := &oracle{t: t, kv: "handoff", dir: t.TempDir()}, &oracle{t: t, change: c.change}, &oracle{t: t}
			tries := 0
			r, err := Run(t.Context(), Options{
				Gateway: cell.open(t), StateDir: cell.dir, Model: "m", MaxTokens: 512,
				Alone:   func(context.Context) (*openaiclient.Client, error) { return alone.open(t), nil },
				Workers: map[string]*openaiclient.Client{"begins": cell.open(t), "goes-on": other.open(t)},
				FoundTokens: func(_ context.Context, worker string) (int64, error) {
					if worker != "goes-on" {
						t.Errorf("%s went on", worker)
					}
					if tries++; tries >= 2*c.foundAt {
						return 7, nil
					}
					return 0, nil
				},
			})
			if !errors.Is(err, c.want) {
				t.Fatal(err)
			}
			if c.want != nil {
				return
			}
			if r.Equal() != c.equal || *r.SecondTurn != (Turn{First: "begins", Second: "goes-on", PromptTokens: 1, FoundTokens: 7}) {
				t.Errorf("%+v, %s", r.SecondTurn, r.Verdict())
			}
			var text strings.Builder
			if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "begun at begins went on at goes-on, which found 7 of its 1 tokens") {
				t.Errorf("%v\n%s", err, text.String())
			}
		})
	}
}

func TestGreedyLoadSamplesNothing(t *testing.T) {
	for _, p := range load(Options{MaxTokens: 512, Greedy: true}) {
		if strings.Contains(p.kind, "sampled") || strings.Contains(p.kind, "thinking") {
			t.Error(p.kind)
		}
	}
}

func TestNoTokensAreNotEqual(t *testing.T) {
	none := func(int, []uint32) []uint32 { return nil }
	_, err := play(t, &oracle{kv: "handoff", change: none}, &oracle{change: none})
	if err == nil || !strings.Contains(err.Error(), "without them nothing can be compared") {
		t.Error(err)
	}
}

func TestFailedRequestFailsTheDemo(t *testing.T) {
	_, err := play(t, &oracle{kv: "handoff", refuse: 17}, &oracle{})
	if err == nil || !strings.Contains(err.Error(), "through the gateway: no engine is left") {
		t.Error(err)
	}
	_, err = play(t, &oracle{kv: "handoff"}, &oracle{refuse: 1})
	if err == nil || !strings.Contains(err.Error(), "through one engine alone: no engine is left") {
		t.Error(err)
	}
}

// The load must have all that it promises, and fit into the model.
func TestLoadIsMixed(t *testing.T) {
	const context = 512
	seen := make(map[string]int)
	for _, p := range load(Options{MaxTokens: context, Reasoning: true}) {
		for word := range strings.SplitSeq(p.kind, ", ") {
			seen[word]++
		}
		length, budget := 0, 0
		if p.chat != nil {
			budget = *p.chat.MaxTokens
			for _, m := range p.chat.Messages {
				length += len(m.Content)
			}
		} else {
			budget, length = *p.completion.MaxTokens, len(p.completion.Prompt.Texts[0])
		}
		if length+budget > context {
			t.Errorf("%s: %d characters and %d tokens of answer", p.kind, length, budget)
		}
	}
	for _, kind := range []string{"short", "long", "shared prefix", "thinking chat", "sampled", "greedy", "streamed"} {
		if seen[kind] < 10 {
			t.Errorf("only %d prompts are %s: %v", seen[kind], kind, seen)
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{1, 2, 3, 4}
	for q, want := range map[float64]float64{0.5: 2, 0.9: 4, 0.25: 1, 0.01: 1, 1: 4} {
		if got := quantile(values, q); got != want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("of nothing")
	}
}
