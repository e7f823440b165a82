package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// A conversation: what its first turn says is four whole chunks of text, and the second
// adds little.
var (
	firstTurn  = strings.Repeat("what was said ", 74)[:1030]
	secondTurn = firstTurn + "and what is to be said now?..."
)

// sharing is a cell of stubs that keep prefixes for each other.
func sharing(t *testing.T, decodes int) *testCell {
	c := newCell(t, 1, decodes, nil)
	for _, e := range c.roster.All() {
		e.Unit.Store(64)
	}
	return c
}

// tell has all decode engines say how much of a second turn they did not compute.
func (c *testCell) tell(spared, cached string) {
	for _, s := range c.decode {
		s.set(habits{spared: spared, cached: cached})
	}
}

// turn asks for an answer, and then keeps the engine that gave it busy, so that the
// next one comes to another.
func (c *testCell) turn(prompt, more string) *ledger.Record {
	c.t.Helper()
	r := c.post(openai.PathCompletions, completion(prompt, more))
	r.whole(c.t, prompt, 5, 12)
	record := c.record(r)
	for _, e := range c.roster.All() {
		if e.Name() == decodedBy(record) {
			e.Running.Add(100)
		}
	}
	return record
}

func decodedBy(r *ledger.Record) string { return r.Legs[len(r.Legs)-1].Engine }

func isStored(r *ledger.Record) bool {
	return strings.HasPrefix(r.Placement, "prefill=none (stored, 256 of 266 tokens), decode=") && len(r.Legs) == 1
}

func TestStoredPrefixGoesStraightToDecode(t *testing.T) {
	for name, stream := range map[string]string{"whole": "", "stream": `,"stream":true`} {
		t.Run(name, func(t *testing.T) {
			c := sharing(t, 2)
			c.tell(`,"prompt_tokens":1060,"cached_tokens":1024`, "")
			first := c.turn(firstTurn, stream)
			if first.Stored != nil || len(first.Legs) != 2 {
				t.Fatalf("nothing was kept yet:\n%s", first)
			}
			second := c.turn(secondTurn, stream)
			if !isStored(second) || decodedBy(second) == decodedBy(first) {
				t.Fatalf("got\n%s", second)
			}
			if want := (ledger.Stored{Tokens: 256, Prompt: 266, Spared: 1024, Of: 1060}); second.Stored == nil || *second.Stored != want {
				t.Errorf("%+v, want %+v", second.Stored, want)
			}
			if want := "stored of the prompt: 256 of 266 tokens were thought to be kept in the cell; 1024 of 1060 did not have to be computed"; !strings.Contains(second.String(), want) {
				t.Errorf("explained without %q:\n%s", want, second)
			}
			if m := c.Metrics(); m.Stored["found"] != 1 || m.Stored["less"]+m.Stored["untold"] != 0 || m.Placements["stored"] != 1 {
				t.Errorf("counted as %v, placements %v", m.Stored, m.Placements)
			}
		})
	}
}

// What was computed ahead by one engine is fetched by another.
func TestComputedAheadIsStored(t *testing.T) {
	c := sharing(t, 1)
	c.tell(`,"prompt_tokens":1060,"cached_tokens":1024`, "")
	if r, _ := c.warm("?engine=p0", completion(firstTurn, "")); r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if turn := c.turn(secondTurn, ""); !isStored(turn) {
		t.Errorf("got\n%s", turn)
	}
}

// Who does not share, or does not tell, is sent nothing because of what is stored.
func TestNotEveryEngineFetches(t *testing.T) {
	for name, change := range map[string]func(*testCell){
		"does not share": func(c *testCell) {
			for _, e := range c.roster.All() {
				e.Unit.Store(0)
			}
		},
		"does not tell": func(c *testCell) { c.vllm() },
		"has no agent": func(c *testCell) {
			for _, e := range c.roster.All() {
				e.Stray.Store(e.Role == placement.Decode)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := sharing(t, 2)
			change(c)
			c.turn(firstTurn, "")
			if second := c.turn(secondTurn, ""); len(second.Legs) != 2 || strings.Contains(second.Placement, "stored") {
				t.Errorf("got\n%s", second)
			}
		})
	}
}

// vLLM tells in its usage, once it has done so.
func TestUsageTells(t *testing.T) {
	c := sharing(t, 3).vllm()
	c.tell("", `,"prompt_tokens_details":{"cached_tokens":1000}`)
	c.turn(firstTurn, "")
	for _, e := range c.roster.All() {
		e.Tells.Store(true) // as after other answers
	}
	second := c.turn(secondTurn, "")
	if !isStored(second) || second.Stored.Spared != 1000 || c.Metrics().Stored["found"] != 1 {
		t.Fatalf("got\n%s", second)
	}
}

// A belief that was wrong is not believed again: later turns are computed by a prefill
// engine, also when they have been kept anew.
func TestWrongBeliefsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		spared   string
		believed int // of later turns
	}{
		"nothing was found": {`,"prompt_tokens":1060,"cached_tokens":0`, 0},
		"less was found":    {`,"prompt_tokens":1060,"cached_tokens":540`, 128},
	} {
		t.Run(name, func(t *testing.T) {
			cell := sharing(t, 4)
			cell.tell(c.spared, "")
			cell.turn(firstTurn, "")
			if wrong := cell.turn(secondTurn, ""); !isStored(wrong) || cell.Metrics().Stored["less"] != 1 {
				t.Fatalf("got\n%s\ncounted as %v", wrong, cell.Metrics().Stored)
			}
			for range 2 {
				later := cell.turn(secondTurn, "")
				believed := 0
				if later.Stored != nil {
					believed = later.Stored.Tokens
				}
				if len(later.Legs) != 2 || believed != c.believed {
					t.Errorf("%d tokens are still believed to be kept, want %d\n%s", believed, c.believed, later)
				}
			}
			if got := cell.Metrics().Stored["less"]; got != 1 {
				t.Errorf("%d went straight to decode wrongly", got)
			}
		})
	}
}

// Whatever an engine says of what it was spared is a number of tokens of the prompt, or
// was not said.
func TestHostileSparedTokens(t *testing.T) {
	for said, end := range map[string]string{
		`"prompt_tokens":1060,"cached_tokens":-5`:                   "less",
		`"prompt_tokens":1060,"cached_tokens":9223372036854775807`:  "found",
		`"prompt_tokens":1060,"cached_tokens":"many"`:               "untold",
		`"prompt_tokens":1060,"cached_tokens":1e300`:                "untold",
		`"prompt_tokens":1060,"cached_tokens":[1]`:                  "untold",
		`"prompt_tokens":-1060,"cached_tokens":1000`:                "untold",
		`"prompt_tokens":9223372036854775807,"cached_tokens":1`:     "less",
		`"prompt_tokens":1060,"cached_tokens":1000,"kv_tokens":-99`: "found",
	} {
		c := sharing(t, 2)
		c.tell(","+said, "")
		c.turn(firstTurn, "")
		second := c.turn(secondTurn, "")
		if !isStored(second) || c.Metrics().Stored[end] != 1 {
			t.Errorf("%s: counted as %v, want %s\n%s", said, c.Metrics().Stored, end, second)
		}
		c.close()
	}
	for said, told := range map[string]bool{
		`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}`:     true,
		`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":"4"}}`:   false,
		`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":1e99}}`:  false,
		`{"prompt_tokens":10,"prompt_tokens_details":[4]}`:                     false,
		`{"prompt_tokens":10,"prompt_tokens_details":null}`:                    false,
		`{"prompt_tokens":"ten","prompt_tokens_details":{"cached_tokens":4}}`:  false,
		`{"prompt_tokens":-10,"prompt_tokens_details":{"cached_tokens":4}}`:    false,
		`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":-4}}`:    true,
		`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":40000}}`: true,
	} {
		var a lifecycle.Answer
		a.Note(&openai.Chunk{Usage: []byte(said)})
		s, got := request.SparedBy(nil, &a.Usage)
		if got != told || s.Tokens < 0 || s.Tokens > s.Of || s.Of > openai.MaxUsage {
			t.Errorf("%s is %+v, told %v, want %v", said, s, got, told)
		}
	}
}

// What one tenant has kept is not believed to be there for another, nor for another
// model or template.
func TestStoredPrefixesAreKeptApart(t *testing.T) {
	c := sharing(t, 4)
	c.tell(`,"prompt_tokens":1060,"cached_tokens":1024`, "")
	c.turn(firstTurn, `,"cache_salt":"green"`)
	for _, other := range []string{"", `,"cache_salt":"red"`, `,"cache_salt":"green","documents":[]`} {
		if second := c.turn(secondTurn, other); len(second.Legs) != 2 || second.Stored != nil {
			t.Errorf("with %q, got\n%s", other, second)
		}
	}
	request := func(model string) *request.Request {
		r, fault := request.Parse(openai.PathCompletions, fmt.Appendf(nil, `{"model":%q,"prompt":%q}`, model, firstTurn))
		if fault != nil {
			t.Fatal(fault)
		}
		return r
	}
	c.roster.NoteKept(request("m").Prefix, time.Now())
	now := time.Now()
	if got := c.roster.KeptOf(request("m-lora").Prefix, now); got != 0 || c.roster.KeptOf(request("m").Prefix, now) == 0 {
		t.Errorf("%d chunks of another model are believed to be there", got)
	}
}

// What engines tell of their prompts is what a stored token weighs with them.
func TestStoredTokensWeighWhatTheyCost(t *testing.T) {
	c := sharing(t, 1)
	c.tell(`,"prompt_tokens":1060,"cached_tokens":1024,"prefill_ms":36,"kv":"found","kv_tokens":1024,"handoff_ms":51.2`, "")
	weight := func() float64 {
		for _, e := range c.Engines() {
			if e.ID == "d0" {
				return e.StoredWeight
			}
		}
		t.Fatal("there is no d0")
		return 0
	}
	c.turn(firstTurn, "")
	if w := weight(); w != 0 {
		t.Errorf("after one answer it weighs %v", w)
	}
	for range 6 {
		c.turn(secondTurn, "")
	}
	if w := weight(); w < 0.049 || w > 0.051 {
		t.Errorf("it weighs %v, not 0.05", w)
	}
}
