package prefix_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
)

// Series of the tiers are called as keys counts them, one for each.
func TestTiersAreTold(t *testing.T) {
	for _, name := range []string{"FoundIn", "FindsIn"} {
		field, has := reflect.TypeFor[prefix.Metrics]().FieldByName(name)
		if want := strings.Join(keys.Tiers[:], ","); !has || field.Tag.Get("index") != want {
			t.Errorf("%s is told by %q, not %q", name, field.Tag.Get("index"), want)
		}
	}
}

// recorder keeps what it is told.
type recorder struct {
	mu  sync.Mutex
	all []prefix.Record
}

func (r *recorder) add(record *prefix.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, *record)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// next waits for the record of a number.
func (r *recorder) next(t *testing.T, number int) (found prefix.Record) {
	t.Helper()
	until.True(t, "it is recorded", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.all) > number {
			found = r.all[number]
		}
		return len(r.all) > number
	})
	return found
}

// Every Find and Keep leaves one record, which tells where what was found or kept lies, and
// why it was not more; a salt is in none.
func TestRecords(t *testing.T) {
	const salt = "of-a-tenant"
	c := newCell(t, "inproc")
	var here, there recorder
	a := c.start("a", nodeOptions{keeps: arenaBytes, offload: func(o *prefix.Options) { o.Ended = here.add }})
	b := c.start("b", nodeOptions{offload: func(o *prefix.Options) { o.Ended = there.add }})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(300, 1)
	p.Scope.Salt = salt
	keep := func(content int) prefix.Record {
		t.Helper()
		whole := p
		whole.Tokens = p.Tokens[:content]
		blocks := writer.blocksFor(content, 3)
		id, before := agent.NewID(), here.count()
		if err := a.Keep(soon(t), prefix.Keep{Engine: "writer", Request: "the-request", Transfer: id, Content: whole, Holding: holding(blocks)}); err != nil {
			t.Fatal(err)
		}
		a.awaitFreed(t, id)
		a.settled(t)
		return here.next(t, before)
	}
	find := func(tokens, seed int) prefix.Record {
		t.Helper()
		whole := prompt(tokens, seed)
		whole.Scope.Salt = salt
		before := there.count()
		if _, err := b.Find(soon(t), prefix.Find{Engine: other.ID, Request: "the-request", Content: whole}); err != nil {
			t.Fatal(err)
		}
		return there.next(t, before)
	}
	for _, c := range []struct {
		name    string
		record  prefix.Record
		outcome string
		parts   int
		present int
		says    string
	}{
		{"kept", keep(200), "kept", 192, 0, "keep of 200 tokens, kept, in"},
		{"more is kept", keep(300), "kept", 64, 192, "kept, 192 were there before"},
		{"all is kept", keep(300), "present", 0, 256, "all of it was kept already"},
		{"found", find(300, 1), "whole", 256, 0, "found 256 of 300 tokens"},
		{"short", find(10, 1), "short", 0, 0, "the prompt is shorter than what is kept of one"},
		{"another prompt", find(300, 2), "miss", 0, 0, "found 0 of 300 tokens"},
	} {
		r := c.record
		if r.Outcome != c.outcome || r.InParts() != c.parts || r.Present != c.present || r.Request != "the-request" || r.EndedUnixUs < time.Now().Add(-time.Hour).UnixMicro() {
			t.Errorf("%s: %+v", c.name, r)
		}
		if !strings.Contains(r.String(), c.says) {
			t.Errorf("%s: %s", c.name, &r)
		}
		for _, part := range r.Parts {
			if part.Owner != "a" || (part.Transfer == kv.ID{}) {
				t.Errorf("%s: %+v", c.name, part)
			}
		}
		if line, err := json.Marshal(r); err != nil || strings.Contains(string(line), salt) || r.Tenant == "" {
			t.Errorf("%s: %s, %v", c.name, line, err)
		}
	}
}

// An owner says in which tier it had what was found; one of a build that does not is asked as
// before, and what it has counts as unknown.
func TestOwnersSayWhereItWas(t *testing.T) {
	for _, c := range []struct {
		reads int
		tier  string
	}{{prefix.Reads, "memory"}, {5, ""}, {0, ""}} {
		cell := newCell(t, "inproc")
		var there recorder
		a := cell.start("a", nodeOptions{keeps: arenaBytes, store: func(o *store.Options) { o.Owner.Prefixes = c.reads }})
		b := cell.start("b", nodeOptions{offload: func(o *prefix.Options) { o.Ended = there.add }})
		writer, other := cell.engine("writer", publisher, a), cell.engine("reader", reader, b)
		writer.keep(t, prompt(128, 1))
		a.settled(t)
		const present = 10 // within the first unit
		found := other.find(t, prompt(128, 1), present)
		if found.Tokens != 128 || len(found.Segments) != 1 {
			t.Fatalf("%+v", found)
		}
		from, m := there.next(t, 0).Parts[0].From, b.Metrics()
		if told := len(from) == 1 && from[0].Tier == c.tier && from[0].Tokens == 128-present; told != (c.tier != "") {
			t.Errorf("who reads %d says %+v", c.reads, from)
		}
		if n := keys.TierNumber(c.tier); m.FoundIn[n] != 128-present || m.FindsIn[n] != 1 {
			t.Errorf("who reads %d: %v, %v", c.reads, m.FoundIn, m.FindsIn)
		}
	}
}

// Every outcome and reason has words.
func TestRecordsHaveWords(t *testing.T) {
	for _, outcome := range prefix.KeepOutcomes {
		if text := (&prefix.Record{Keep: true, Outcome: outcome}).String(); outcome != "kept" && strings.Contains(text, "tokens, "+outcome+", in") {
			t.Errorf("%s: %s", outcome, text)
		}
	}
	for _, outcome := range prefix.FindOutcomes {
		if outcome == "whole" || outcome == "part" {
			continue
		}
		if text := (&prefix.Record{Outcome: outcome, Reason: outcome}).String(); strings.HasSuffix(text, "; "+outcome+"\n") {
			t.Errorf("%s: %s", outcome, text)
		}
	}
}
