package node

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/prefix/survey"
	"meridian/keep/store"
	"meridian/keep/store/disk"
	"meridian/kv"
	"meridian/member/directory/etcd/embedded"
	"meridian/move/agent"
	"meridian/move/agent/peerquery"
	"meridian/see/dash"
	"meridian/see/history"
	"meridian/serve/door"
)

// awaitEvent waits for what ends a transfer.
func awaitEvent(t *testing.T, ctx context.Context, events <-chan door.Event, kind door.EventKind) door.Event {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.Kind == door.Failed {
				t.Fatal(e.Problem)
			}
			if e.Kind == kind {
				return e
			}
		case <-ctx.Done():
			t.Fatalf("no %v came", kind)
		}
	}
}

// Two agents as `meridian agent` runs them, one of which keeps objects: what an engine
// keeps at one door, an engine of another layout and block size finds at the other.
func TestPrefixesAtTheDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	directory, err := embedded.Open(ctx, embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close(context.Background()) })
	open := func(name string, s *Store) *Agent {
		n, err := OpenAgent(ctx, AgentOptions{Name: name, StateDir: dir, Listen: "127.0.0.1:0", Metrics: "127.0.0.1:0", Door: &Door{}, Store: s})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	terms := Prefixes{BlockTokens: 32, FindWait: 300 * time.Microsecond, FindTimeout: time.Second}
	keeper := open("keeper", &Store{
		Owner: &store.OwnerOptions{Bytes: 16 << 20}, Candidate: true, Prefixes: terms, Disk: &disk.Options{Dir: filepath.Join(dir, "disk"), Bytes: 64 << 20, Buffered: true},
	})
	other := open("other", &Store{Prefixes: terms})
	none := open("none", nil)

	layout := func(text string) kv.Layout {
		l, err := kv.ParseLayout(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	publication := door.Publication{
		Geometry: kv.Uniform(2, kv.Layer{KVHeads: 1, HeadDim: 8}, kv.Float32), Parallelism: kv.Split(2, 1, 1), Layout: layout("BLNFHD"), BlockTokens: 4, Blocks: 64, Scope: kv.Scope{Model: "m"},
	}
	wide := publication
	wide.BlockTokens, wide.Blocks = 16, 16
	from, source, freed := atDoor(t, ctx, dir, "keeper", "writer", publication)
	to, destination, heard := atDoor(t, ctx, dir, "other", "reader", wide)
	without, _, _ := atDoor(t, ctx, dir, "none", "alone", publication)
	if _, has := without.Cache(); has || none.Prefixes != nil {
		t.Error("an agent without a store keeps prefixes")
	}
	if got, has := from.Cache(); !has || got.BlockTokens != 32 || got.FindWait != 300*time.Microsecond {
		t.Errorf("%+v", got)
	}

	// Within a block all tokens of a layer follow one another, each with its K and its V.
	const tokens, perToken, layers = 64, 64, 2
	prompt, table := make([]uint32, tokens), make([]uint32, tokens/4)
	for i := range table {
		table[i] = uint32(len(table) - 1 - i)
	}
	at := func(block, layer, token, inBlock int) uint64 {
		return uint64(((block*layers+layer)*inBlock + token) * perToken)
	}
	for i := range prompt {
		prompt[i] = uint32(i + 1)
		for layer := range layers {
			copy(source.Bytes(at(int(table[i/4]), layer, i%4, 4), perToken), bytes.Repeat([]byte{byte(2*i + layer + 1)}, perToken))
		}
	}
	// The owner is one once it has a lease; until then nothing can be kept.
	var found door.Found
	for found.Tokens == 0 && ctx.Err() == nil {
		id := agent.NewID()
		if err := from.Keep(ctx, door.Keep{Transfer: id, Tokens: prompt, Tables: [][]uint32{table}}); err != nil {
			t.Fatal(err)
		}
		if e := awaitEvent(t, ctx, freed, door.Freed); e.Transfer != id {
			t.Fatalf("%+v", e)
		}
		if found, err = to.Find(ctx, door.Find{Tokens: prompt}); err != nil {
			t.Fatal(err)
		}
	}
	if found.Tokens != tokens {
		t.Fatalf("%+v", found)
	}
	if _, err := to.Accept(ctx, door.Accept{Ticket: found.Ticket, Tokens: prompt, Tables: [][]uint32{{3, 9, 4, 12}}}); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, ctx, heard, door.Ready)
	for i := range prompt {
		for layer := range layers {
			got := destination.Bytes(at([]int{3, 9, 4, 12}[i/16], layer, i%16, 16), perToken)
			if want := bytes.Repeat([]byte{byte(2*i + layer + 1)}, perToken); !bytes.Equal(got, want) {
				t.Fatalf("wrong bytes of token %d in layer %d: %x", i, layer, got)
			}
		}
	}
	text := scrape(t, other.MetricsAddr()) + scrape(t, keeper.MetricsAddr())
	for _, line := range []string{
		`meridian_cache_finds_total{end="whole"} 1`, `meridian_cache_tokens_total{result="found"} 64`,
		`meridian_cache_keeps_total{end="kept"} 1`, `meridian_cache_owner_units_total{end="taken"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	toldOfKept(t, ctx, keeper, other)
	// It is on the disk alone now: an engine that finds it is told so.
	if found, err = to.Find(ctx, door.Find{Tokens: prompt, Request: "from-the-disk"}); err != nil || found.Tokens != tokens {
		t.Fatalf("%+v, %v", found, err)
	}
	text = scrape(t, other.MetricsAddr())
	for _, line := range []string{
		`meridian_cache_tier_finds_total{tier="memory"} 1`, `meridian_cache_tier_tokens_total{tier="memory"} 64`, `meridian_cache_tier_finds_total{tier="disk"} 1`,
		`meridian_cache_tier_tokens_total{tier="disk"} 64`, `meridian_cache_tier_tokens_total{tier="unknown"} 0`,
		`meridian_cache_model_tokens_total{model="m",result="found"} 128`, `meridian_cache_model_finds_total{model="m",result="hit"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	uses, err := none.Survey.Uses(ctx, none.Questions)
	if err != nil {
		t.Fatal(err)
	}
	models := uses.By(func(u *survey.Use) string { return u.Model })
	if len(models) != 1 || models[0].Model != "m" || models[0].TokensFound != 128 || models[0].FoundIn["memory"] != 64 || models[0].FoundIn["disk"] != 64 || models[0].Objects != 2 {
		t.Errorf("%+v", models)
	}
	if _, oldest := uses.Ages("keeper", "disk"); oldest > 120 || !slices.ContainsFunc(uses.Uses, func(u survey.Use) bool { return u.Agent == "keeper" && u.Below["disk"] > 0 }) {
		t.Errorf("the disk's oldest is %d s old: %+v", oldest, uses.Uses)
	}
	g, err := history.Gather(ctx, keeper.Questions, "from-the-disk")
	if err != nil || !strings.Contains(g.String(), "at owner  keeper: tokens 0 to 64, 64 in disk (") {
		t.Errorf("%v, %v", g, err)
	}
}

// toldOfKept looks at the two pieces that keeper has as the page does, from another agent.
func toldOfKept(t *testing.T, ctx context.Context, keeper, other *Agent) {
	t.Helper()
	gathered := func(id string) *history.Gathered {
		t.Helper()
		g, err := history.Gather(ctx, other.Questions, id)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	several := gathered("kv/")
	if ids := several.IDs(); len(several.Objects) != 2 || len(ids) != 2 || len(dash.ExplanationOf("kv/", several).IDs) != 2 {
		t.Fatalf("%+v", several)
	}
	key := several.Objects[0].Key
	one := gathered(key)
	if len(one.Objects) != 1 || one.Objects[0] != several.Objects[0] || one.Objects[0].Owner != "keeper" || one.Objects[0].Tier != store.Memory || one.Objects[0].Bytes == 0 {
		t.Fatalf("%+v", one)
	}
	if story := dash.ExplanationOf(key, one); story.IDs != nil || !strings.HasPrefix(story.Text, key+"\n") || !strings.Contains(story.Text, "owner     keeper\n") || !strings.Contains(story.Text, "in memory\n") {
		t.Errorf("%+v", story)
	}
	if none := gathered("kv/" + strings.Repeat("0", 64)); !none.Empty() || len(none.Silent) > 0 {
		t.Errorf("%+v", none)
	}
	tier := func(name string) history.TierCounts {
		row := dash.MemberRow(kv.Member{Name: "keeper"}, new(aboutOf(t, ctx, keeper)))
		i := slices.IndexFunc(row.Objects.Tiers, func(t history.TierCounts) bool { return t.Name == name })
		return row.Objects.Tiers[i]
	}
	if memory := tier(store.Memory); memory.Objects != 2 || memory.Used == 0 || memory.Total == 0 {
		t.Errorf("%+v", memory)
	}
	if asked := aboutOf(t, ctx, other); asked.Objects != nil || asked.Prefixes.Found != 64 || asked.Prefixes.Asked%64 != 0 || asked.Prefixes.Asked == 0 { // it asked until it was kept
		t.Errorf("%+v, %+v", asked, asked.Prefixes)
	}
	// What leaves memory is found on the disk, by its whole key.
	if _, err := keeper.Store.EvictUntilBelow(ctx, "keeper", 0); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it lies on the disk", func() bool {
		g := gathered(key)
		return len(g.Objects) == 1 && g.Objects[0].Tier == "disk" && strings.Contains(g.String(), "in disk, from where")
	})
	until.True(t, "the disk has both", func() bool { return tier("disk").Objects == 2 })
	if d := tier("disk"); d.Used == 0 || d.Total != 64<<20 || d.Down || tier(store.Memory).Objects != 0 {
		t.Errorf("%+v", d)
	}
}

// aboutOf is what an agent tells others of itself.
func aboutOf(t *testing.T, ctx context.Context, n *Agent) (told history.About) {
	t.Helper()
	a, err := n.Questions.Ask(ctx, kv.Member{Name: n.Name()}, peerquery.Question{Kind: peerquery.About})
	if err == nil {
		err = json.Unmarshal(a.Records[0], &told)
	}
	if err != nil {
		t.Fatal(err)
	}
	return told
}
