package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/internal/until"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/kvevents/kveventstest"
	"meridian/serve/openai"
)

func ids(n, from int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(from + i)
	}
	return tokens
}

func (c *testCell) awaitCache(engine string, good func(roster.CacheState) bool) {
	c.t.Helper()
	until.Well(c.t, "the cache of "+engine+" is as it should be", func() string {
		all := c.Engines()
		for _, e := range all {
			if e.ID == engine && len(e.Caches) == 1 && good(e.Caches[0]) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", all)
	})
}

func promptOf(tokens []uint32) string {
	return fmt.Sprintf(`{"model":"m","max_tokens":1,"prompt":%s}`, openai.AppendIDs(nil, tokens))
}

// What engines say of their caches decides where prompts go.
func TestCacheEventsPlace(t *testing.T) {
	engines := []*fakeVLLM{newFakeVLLM(t).publishing(), newFakeVLLM(t).publishing(), newFakeVLLM(t)}
	for _, f := range engines {
		f.whole = `{"choices":[]}`
	}
	cell := beforeVLLM(t, nil, engines, nil)
	prompt := ids(160, 500)
	engines[1].events.AwaitSubscriber()
	engines[1].events.Publish(kveventstest.Batch(1, kveventstest.Stored([]uint64{1, 2, 3, 4}, nil, prompt[:128]))) // blocks of 32
	cell.awaitCache("d1", func(c roster.CacheState) bool {
		return c.Connected && c.Blocks == 4 && c.BlockTokens == 32 && c.LastEvent != nil
	})
	r := cell.post(openai.PathCompletions, promptOf(prompt))
	if got, want := r.header.Get(edge.HeaderPlacement), "prefill=none (cached, 128 of 160 tokens), decode=d1 (prefix 128/160 by its events)"; !strings.HasSuffix(got, "decode=d1 (prefix 128/160 by its events)") {
		t.Errorf("placed as %q, want %q", got, want)
	}
	record := cell.record(r)
	if len(record.Held) != 1 || record.Held[0].Engine != "d1" || record.Held[0].Tokens != 128 || !record.Held[0].Told {
		t.Errorf("the record has %+v", record.Held)
	}
	if told := record.String(); !strings.Contains(told, "held of the prompt: 128 tokens at d1, by its events") {
		t.Errorf("explained as %s", told)
	}
	// It has given up the second block: what comes after it is of no use.
	engines[1].events.Publish(kveventstest.Batch(2, kveventstest.Removed(2)))
	cell.awaitCache("d1", func(c roster.CacheState) bool { return c.Blocks == 3 })
	engines[0].events.AwaitSubscriber()
	engines[0].events.Publish(kveventstest.Batch(1, kveventstest.Stored([]uint64{1, 2}, nil, prompt[:64])))
	cell.awaitCache("d0", func(c roster.CacheState) bool { return c.Blocks == 2 })
	r = cell.post(openai.PathCompletions, promptOf(prompt))
	if got := r.header.Get(edge.HeaderPlacement); !strings.Contains(got, "decode=d0 (prefix 64/160 by its events)") {
		t.Errorf("placed as %q", got)
	}
	if m := cell.Metrics(); m.Cache.Up != 2 || m.Cache.Blocks != 5 || m.Cache.Batches != 3 || m.Placements["told"] != 2 {
		t.Errorf("metrics %+v, %v", m.Cache, m.Placements)
	}
}

// A salt and an adapter keep caches apart, here as in the engine.
func TestCacheEventsKeepApart(t *testing.T) {
	d := newFakeVLLM(t).publishing()
	d.whole = `{"choices":[]}`
	cell := beforeVLLM(t, nil, []*fakeVLLM{d, newFakeVLLM(t)}, nil)
	d.events.AwaitSubscriber()
	prompt := ids(64, 500)
	salted := kveventstest.Member{Name: "extra_keys", Value: []any{[]any{"tenant"}, nil}}
	adapted := kveventstest.Member{Name: "lora_name", Value: "sql"}
	d.events.Publish(kveventstest.Batch(1,
		kveventstest.Stored([]uint64{1, 2}, nil, prompt[:32], salted),
		kveventstest.Stored([]uint64{3}, nil, prompt[:16], adapted),
	))
	cell.awaitCache("d0", func(c roster.CacheState) bool { return c.Blocks == 3 })
	held := func(a *request.Request, model string) int {
		a.Model = model
		tokens, told := cell.roster.HeldAt(cell.roster.All()[0], a, time.Now())
		if !told {
			t.Error("d0 does not tell")
		}
		return tokens
	}
	if got := held(&request.Request{IDs: prompt}, "m"); got != 0 {
		t.Errorf("%d tokens of others are held", got)
	}
	if got := held(&request.Request{IDs: prompt, Salt: "tenant"}, "m"); got != 32 {
		t.Errorf("%d tokens are held with the salt, want 32", got)
	}
	if got := held(&request.Request{IDs: prompt}, "sql"); got != 16 {
		t.Errorf("%d tokens are held with the adapter, want 16", got)
	}
}

// The tokens of a text are learned from the engine that made them, and the next
// prompt that begins alike is looked for by them.
func TestTextIsLearned(t *testing.T) {
	p, d0, d1 := newFakeVLLM(t), newFakeVLLM(t).publishing(), newFakeVLLM(t).publishing()
	p.ticket = `{"do_remote_prefill":true}`
	d0.whole, d1.whole = `{"choices":[]}`, `{"choices":[]}`
	cell := beforeVLLM(t, []*fakeVLLM{p}, []*fakeVLLM{d0, d1}, nil)
	cell.awaitCache("d0", func(c roster.CacheState) bool { return c.Connected })
	cell.awaitCache("d1", func(c roster.CacheState) bool { return c.Connected })
	text := strings.Repeat("All work and no play. ", 30)
	request := fmt.Sprintf(`{"model":"m","max_tokens":1,"prompt":%q}`, text)
	cell.post(openai.PathCompletions, request)
	if !strings.Contains(p.seen()[0], `"return_token_ids":true`) {
		t.Fatalf("the prefill engine was not asked for tokens: %s", p.seen()[0])
	}
	// The decode engine that did not get it says that it has it.
	other, id := d0, "d0"
	if len(d0.seen()) > 0 {
		other, id = d1, "d1"
	}
	tokens := textIDs([]byte(fmt.Sprintf("%q", text)))
	names := make([]uint64, len(tokens)/16)
	for i := range names {
		names[i] = uint64(i + 1)
	}
	other.events.AwaitSubscriber()
	other.events.Publish(kveventstest.Batch(1, kveventstest.Stored(names, nil, tokens[:16*len(names)])))
	cell.awaitCache(id, func(c roster.CacheState) bool { return c.Blocks == len(names) })
	r := cell.post(openai.PathCompletions, request)
	if got, want := r.header.Get(edge.HeaderPlacement), fmt.Sprintf("decode=%s (prefix %d/%d by its events)", id, 16*len(names), len(tokens)); !strings.Contains(got, want) {
		t.Errorf("placed as %q, want %q", got, want)
	}
	if strings.Contains(string(r.body), "prompt_token_ids") {
		t.Errorf("the client got %s", r.body)
	}
}

func TestCacheEventsAreConfigured(t *testing.T) {
	d := newFakeVLLM(t)
	events := kveventstest.New(t)
	at, replay := events.Addresses()
	cell := beforeVLLM(t, nil, nil, func(o *Options) {
		o.Backends = []Backend{{URL: d.server.URL, Role: placement.Both, Engine: "d0", Cache: CacheEvents{Events: "tcp://" + at, Replay: "tcp://" + replay}}}
	})
	events.AwaitSubscriber()
	cell.awaitCache("d0", func(c roster.CacheState) bool { return c.Connected && c.Events == "tcp://"+at })
	off := newFakeVLLM(t).publishing()
	quiet := beforeVLLM(t, nil, nil, func(o *Options) {
		o.Backends = []Backend{{URL: off.server.URL, Role: placement.Both, Engine: "d0", Cache: CacheEvents{Off: true}}}
	})
	if states := quiet.Engines(); len(states[0].Caches) != 0 {
		t.Errorf("what was turned off is followed: %+v", states)
	}
}
