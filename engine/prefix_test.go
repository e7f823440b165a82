package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/engine/batch"
	"meridian/internal/until"
	"meridian/serve/openai"
)

// keeping is a cell that keeps prefixes in units of so many tokens.
func keeping(t *testing.T, unit int) *cell {
	t.Helper()
	c := newCell()
	c.fakeCache = newFakeCache(join(t, nil, Options{}), unit)
	return c
}

// kept waits until the cell has so many units.
func (c *cell) kept(t *testing.T, units int) {
	t.Helper()
	until.Well(t, "units are kept", func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if have := len(c.fakeCache.blocks); have < units {
			return fmt.Sprintf("the cell has %d, not %d", have, units)
		}
		return ""
	})
}

// finds is how often something was found.
func (c *cell) finds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fakeCache.found
}

func shut(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// What one engine kept another finds, however both are cut, also when the first is
// gone, and answers as one engine alone.
func TestFoundEqualsAlone(t *testing.T) {
	alone := join(t, nil, Options{})
	requests := variants()
	for name, r := range requests { // longer, so that there is something to keep
		r.Prompts = [][]uint32{append(prompt(17, 100), r.Prompts[0]...)}
		requests[name] = r
	}
	want := make(map[string][]told)
	for name, r := range requests {
		want[name], _ = ask(t, alone, r)
	}
	type pair struct {
		unit           int
		writer, reader Options
	}
	pairs := []pair{
		{64, Options{BlockTokens: 16}, Options{BlockTokens: 16}},
		{48, Options{TP: 2, BlockTokens: 16}, Options{TP: 4, PP: 2, BlockTokens: 64}},
		{64, Options{TP: 4, BlockTokens: 24, Layout: "BLHNC"}, Options{PP: 4, BlockTokens: 32, Layout: "LBNHC"}},
		{17, Options{PP: 2, BlockTokens: 32}, Options{TP: 2, BlockTokens: 5}},
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	any := func() Options {
		return Options{
			TP: 1 << dice.IntN(3), PP: 1 + dice.IntN(4), BlockTokens: 1 + dice.IntN(70),
			Layout: []string{"LBHNC", "BLHNC", "LBNHC", "BLFHND"}[dice.IntN(4)],
		}
	}
	for range 4 {
		pairs = append(pairs, pair{1 + dice.IntN(90), any(), any()})
	}
	for _, c := range pairs {
		world := keeping(t, c.unit)
		writer := join(t, world, c.writer)
		for name, r := range requests {
			r.Salt = name // so that each is kept by itself
			if got, _ := ask(t, writer, r); !cmp.Equal(got, want[name]) {
				t.Errorf("%s: the writer's answer is wrong: %s", name, cmp.Diff(want[name], got))
			}
			idle(t, writer) // else it might have too much out to keep more
		}
		shut(t, writer)
		reader := join(t, world, c.reader)
		for name, r := range requests {
			r.Salt = name
			got, result := ask(t, reader, r)
			if diff := cmp.Diff(want[name], got); diff != "" {
				t.Errorf("%s, unit %d, %s → %s, wrong: %s", name, c.unit, writer.cutText, reader.cutText, diff)
			}
			least := (len(r.Prompts[0]) - 1) / c.unit * c.unit
			if cached := result.Usage.PromptDetails.CachedTokens; result.Report.KV != openai.KVFound || cached < least {
				t.Errorf("%s: %+v, %d tokens of %d", name, result.Report, cached, len(r.Prompts[0]))
			}
		}
		if s := idle(t, reader); s.Counters.Found != uint64(len(requests)) || s.Counters.Broken != 0 {
			t.Errorf("%+v", s.Counters)
		}
	}
}

// The next turn finds the answer of the last one, and what it keeps is what was not
// kept before.
func TestNextTurnIsFound(t *testing.T) {
	world := keeping(t, 16)
	first := join(t, world, Options{})
	r := Request{Prompts: [][]uint32{prompt(3, 40)}, MaxTokens: 60, IgnoreEOS: true}
	answer, _ := ask(t, first, r)
	world.kept(t, 6) // of 99 tokens
	idle(t, first)
	second := join(t, world, Options{BlockTokens: 8})
	r.Prompts = [][]uint32{slices.Concat(r.Prompts[0], answer[0].Tokens, prompt(4, 30))}
	_, result := ask(t, second, r)
	if cached := result.Usage.PromptDetails.CachedTokens; cached != 96 {
		t.Errorf("%d tokens were found", cached)
	}
	if computed := second.Metrics().Computed; computed > uint64(130-96+60) {
		t.Errorf("%d tokens were computed", computed)
	}
	world.kept(t, 11) // of 189
	idle(t, second)
	// What is here is not looked for.
	found := world.finds()
	ask(t, second, r)
	if world.finds() != found {
		t.Error("what is here was looked for")
	}
}

// Of an answer whose thought ended, as the request says thoughts end, the prompt alone is kept;
// of any other all of it.
func TestThoughtsAreNotKept(t *testing.T) {
	prompt := prompt(3, 40)
	r := Request{Prompts: [][]uint32{prompt}, MaxTokens: 60, IgnoreEOS: true}
	answer, _ := ask(t, join(t, nil, Options{}), r)
	tokens := answer[0].Tokens
	for name, c := range map[string]struct {
		end   []uint32
		units int
	}{
		"nothing is said": {nil, 6}, // of 99 tokens
		"a token":         {tokens[20:21], 2},
		"several":         {tokens[30:34], 2},
		"the last":        {tokens[59:], 2},
		"not in it":       {[]uint32{tokens[20], tokens[20] + 1, tokens[21]}, 6},
		"longer than it":  {slices.Repeat(tokens[:1], maxThoughtEnd), 6},
	} {
		world := keeping(t, 16)
		e := join(t, world, Options{})
		r.ThoughtEnd = c.end
		ask(t, e, r)
		world.kept(t, c.units)
		idle(t, e)
		world.mu.Lock()
		if have := len(world.fakeCache.blocks); have != c.units {
			t.Errorf("%s: %d units are kept, and not %d", name, have, c.units)
		}
		world.mu.Unlock()
		shut(t, e)
	}
}

// What was here when a prefix was looked for, and is not any more when its request gets its
// blocks, no transfer fills: the request computes, and what was found is given back.
func TestPrefixHereIsEvictedMeanwhile(t *testing.T) {
	alone, world := join(t, nil, Options{}), keeping(t, 16)
	r := Request{Prompts: [][]uint32{prompt(3, 100)}, MaxTokens: 20, IgnoreEOS: true}
	want, _ := ask(t, alone, r)
	writer := join(t, world, Options{})
	ask(t, writer, r)
	idle(t, writer)
	reader := join(t, world, Options{Blocks: 40, BlockTokens: 8})
	ask(t, reader, Request{Prompts: [][]uint32{r.Prompts[0][:50]}, MaxTokens: 1})
	idle(t, reader)
	world.mu.Lock()
	world.fakeCache.meanwhile = func(e *Engine) { // one that needs all blocks comes and goes
		large := &batch.Sequence{Tokens: make([]uint32, 40*8), Prompt: 40 * 8}
		if err := e.scheduler.Add(large); err != nil {
			t.Error(err)
		}
		e.scheduler.Plan()
		e.scheduler.Remove(large)
	}
	world.mu.Unlock()
	before := world.finds()
	got, result := ask(t, reader, r)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong: %s", diff)
	}
	if world.finds() == before || result.Report.KV != openai.KVLocal || result.Report.KVReason == "" || result.Usage.PromptDetails.CachedTokens != 0 {
		t.Errorf("%d found, then %d: %+v, %+v", before, world.finds(), result.Report, result.Usage.PromptDetails)
	}
	idle(t, reader)
	world.until(t, "what was found is given back", func() bool { return len(world.offers) == 0 })
}

// A tenant does not find what another kept, and an engine does not look for what is short.
func TestWhatIsNotFound(t *testing.T) {
	world := keeping(t, 16)
	a, b := join(t, world, Options{}), join(t, world, Options{})
	r := Request{Prompts: [][]uint32{prompt(3, 40)}, MaxTokens: 4, Salt: "blue"}
	ask(t, a, r)
	world.kept(t, 2)
	r.Salt = "green"
	if _, result := ask(t, b, r); result.Report.KV != openai.KVLocal || b.Metrics().Missed != 1 {
		t.Errorf("%+v, %+v", result.Report, b.Metrics())
	}
	r.Salt, r.Prompts[0] = "blue", r.Prompts[0][:16]
	if _, result := ask(t, b, r); result.Report.KV != openai.KVLocal || b.Metrics().Missed != 1 {
		t.Errorf("%+v, %+v", result.Report, b.Metrics())
	}
	idle(t, a)
	idle(t, b)
}

// What an engine keeps and finds comes with the leg of the request that it is for.
func TestLegsOfKeepsAndFinds(t *testing.T) {
	world := keeping(t, 16)
	a, b := join(t, world, Options{}), join(t, world, Options{})
	ask(t, a, Request{Prompts: [][]uint32{prompt(3, 40)}, MaxTokens: 4, Leg: []byte("first")})
	world.kept(t, 2)
	ask(t, b, Request{Prompts: [][]uint32{prompt(3, 40)}, MaxTokens: 4, Leg: []byte("second")})
	idle(t, a)
	idle(t, b)
	world.mu.Lock()
	defer world.mu.Unlock()
	first, second := 0, 0
	for _, leg := range world.fakeCache.legs {
		switch leg {
		case "first":
			first++
		case "second":
			second++
		default:
			t.Errorf("a leg is %q", leg)
		}
	}
	if first < 2 || second < 1 {
		t.Errorf("%q", world.fakeCache.legs)
	}
}

// An agent that does not answer holds no request up for long, and what it finds too late is
// given back.
func TestFindThatHangs(t *testing.T) {
	world := keeping(t, 16)
	a, b := join(t, world, Options{}), join(t, world, Options{})
	r := Request{Prompts: [][]uint32{prompt(3, 40)}, MaxTokens: 4}
	want, _ := ask(t, a, r)
	idle(t, a)
	hang := make(chan struct{})
	world.mu.Lock()
	world.fakeCache.hang = hang
	world.mu.Unlock()
	ctx := within(t)
	stream, err := b.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	short := Request{Prompts: [][]uint32{prompt(5, 10)}, MaxTokens: 100, IgnoreEOS: true}
	ask(t, b, short) // meanwhile
	got, result, err := readAll(ctx, stream, 1)
	if err != nil || !cmp.Equal(got, want) || result.Report.KV != openai.KVLocal {
		t.Errorf("%v, %+v: %s", err, result.Report, cmp.Diff(want, got))
	}
	// A client that goes meanwhile.
	r.Salt = "other"
	leaving, leave := context.WithCancel(ctx)
	if stream, err = b.Submit(leaving, r); err != nil {
		t.Fatal(err)
	}
	leave()
	if _, _, err = readAll(ctx, stream, 1); !errors.Is(err, errCancelled) {
		t.Errorf("%v", err)
	}
	close(hang)
	until.True(t, "something is found, too late", func() bool { return world.finds() > 0 })
	world.until(t, "it is given back", func() bool { return len(world.offers) == 0 })
	idle(t, b)
}

// Blocks that are not given back bound what is kept, not what is computed.
func TestKeepIsNeverInTheWay(t *testing.T) {
	world := keeping(t, 16)
	world.fakeCache.holds = true
	e, d := joinAt(t, world, Options{Blocks: 64, BlockTokens: 16})
	alone := join(t, nil, Options{})
	for i := range 20 {
		r := Request{Prompts: [][]uint32{prompt(uint64(i), 100)}, MaxTokens: 60, IgnoreEOS: true}
		want, _ := ask(t, alone, r)
		if got, _ := ask(t, e, r); !cmp.Equal(got, want) {
			t.Fatalf("wrong: %s", cmp.Diff(want, got))
		}
	}
	if s := e.Stats(); s.Blocks.Held == 0 || s.Blocks.Held > 16 || s.Counters.Kept == 0 || s.Counters.Unkept == 0 {
		t.Errorf("%+v, %+v", s.Blocks, s.Counters)
	}
	d.lose(true)
	idle(t, e)
	asked := make(chan [2]int)
	e.post(func() { asked <- [2]int{e.keeps, e.keptBlocks} })
	if left := <-asked; left != [2]int{} {
		t.Errorf("%d keeps hold %d blocks", left[0], left[1])
	}
}

// However the door fails in the middle of keeping and finding, a client that gets an answer
// gets the right one, and no block is lost.
func TestHammerOfPrefixes(t *testing.T) {
	alone := join(t, nil, Options{})
	world := keeping(t, 16)
	world.trouble = trouble{dice: rand.New(rand.NewPCG(5, 6)), refuse: 10, fail: 20, silence: 3, late: 50, mute: 3, slowest: 3000}
	small := Options{Blocks: 100, BlockTokens: 8, MaxRunning: 6, StepTokens: 16, HandoffDeadline: 2 * time.Millisecond, Layout: "BLHNC"}
	a, aDoor := joinAt(t, world, small)
	small.TP, small.BlockTokens, small.Blocks = 2, 24, 40
	b, bDoor := joinAt(t, world, small)
	requests := make([]Request, 16)
	want := make([][]told, len(requests))
	for i := range requests {
		text := slices.Concat(prompt(uint64(i%3), 20+12*(i%7)), prompt(uint64(i), 9))
		requests[i] = Request{Prompts: [][]uint32{text}, N: 1 + i%2, MaxTokens: 12, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: uint64(i)}}
		want[i], _ = ask(t, alone, requests[i])
	}
	var all sync.WaitGroup
	for client := range 8 {
		dice := rand.New(rand.NewPCG(uint64(client), 19))
		all.Go(func() {
			for range 30 {
				i := dice.IntN(len(requests))
				if err := oneAnswer([]*Engine{a, b}[dice.IntN(2)], requests[i], want[i], dice); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		before := ended(a, b)
		until.True(t, "ten more requests have ended", func() bool { return ended(a, b) >= before+10 })
		aDoor.lose(true)
		bDoor.lose(true)
	}
	all.Wait()
	aDoor.lose(true)
	bDoor.lose(true)
	first, second := idle(t, a).Counters, idle(t, b).Counters
	if first.Found+second.Found == 0 || first.Broken+second.Broken == 0 || first.Kept+second.Kept == 0 {
		t.Errorf("the test tests too little: %+v, %+v", first, second)
	}
}

// oneAnswer is a request whose client may go at any moment.
func oneAnswer(e *Engine, r Request, want []told, dice *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if dice.IntN(4) == 0 {
		time.AfterFunc(time.Duration(dice.IntN(20_000))*time.Microsecond, cancel)
	}
	r.Salt = fmt.Sprint(dice.IntN(3))
	s, err := e.Submit(ctx, r)
	if err != nil {
		return err
	}
	got, _, err := readAll(ctx, s, r.N)
	if err != nil {
		return gone(ctx, err)
	}
	if !cmp.Equal(got, want) {
		return fmt.Errorf("wrong: %s", cmp.Diff(want, got))
	}
	return nil
}

// What a token costs is learned from steps that compute prompts, and from no others.
func TestTokenTime(t *testing.T) {
	e := &Engine{}
	decode := []batch.Work{{Count: 1}, {Count: 1}}
	if e.measure(decode, time.Second); e.tokenTime != 0 {
		t.Fatalf("steps of answers say that a token of a prompt takes %v", e.tokenTime)
	}
	e.measure([]batch.Work{{Count: 100}}, 100*time.Microsecond)
	if e.measure(append(decode, batch.Work{Count: 5}), time.Second); e.tokenTime != time.Microsecond {
		t.Fatalf("a token takes %v", e.tokenTime)
	}
	for range 30 {
		e.measure([]batch.Work{{Count: 64}, {Count: 1}}, 650*time.Microsecond)
	}
	if e.tokenTime < 9*time.Microsecond || e.tokenTime > 10*time.Microsecond {
		t.Fatalf("after it got slower, a token takes %v", e.tokenTime)
	}
}
