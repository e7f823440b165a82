package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"meridian/serve/gateway/request"
	"meridian/serve/gateway/warm"
	"meridian/serve/openai"
)

// tokenize is a stub's: a token for every byte of what its template writes, and one for each
// marker of a thought.
func (s *stub) tokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model    string
		Prompt   *string
		Messages []struct{ Role, Content, Reasoning string }
		Options  map[string]any `json:"chat_template_kwargs"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Model != "m" {
		s.t.Errorf("%s is asked for tokens of %+v: %v", s.id, in, err)
	}
	s.tokenized.Add(1)
	thoughts := s.habit().thoughts
	switch thoughts {
	case "mute":
		http.NotFound(w, r)
		return
	case "ill":
		http.Error(w, "ill", http.StatusInternalServerError)
		return
	case "busy":
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	case "gone":
		panic(http.ErrAbortHandler)
	}
	var text string
	if in.Prompt != nil {
		text = *in.Prompt
	}
	for _, m := range in.Messages {
		content := m.Content
		if thoughts != "within" && in.Options["keep"] == nil {
			_, after, has := strings.Cut(content, "</think>")
			if has {
				content = strings.TrimLeft(after, "\n")
			}
		}
		if thoughts == "beside" {
			content = m.Reasoning + content
		}
		text += m.Role + content
	}
	text = strings.NewReplacer("<think>", "\x01", "</think>", "\x02").Replace(text)
	_ = json.NewEncoder(w).Encode(map[string]any{"count": len(text), "tokens": promptIDs(text)})
}

// told is what an engine was told of how thoughts end, by its last request of a client.
func (s *stub) told() string {
	all := s.seen()
	for i := len(all) - 1; i >= 0; i-- {
		if params, _ := all[i].body["kv_transfer_params"].(map[string]any); all[i].body["max_tokens"] != json.Number("1") {
			return fmt.Sprint(params["meridian_thought_end"])
		}
	}
	return "nothing came"
}

// Once it is known that a template strips thoughts, engines that share are told how one ends,
// and keep no thoughts; where it keeps them, or does not say, they are not.
func TestThoughtsThatAreStrippedAreNotKept(t *testing.T) {
	for name, test := range map[string]struct {
		thoughts, more string
		prefills       int
		alone          bool // its engines do not share
		told           string
	}{
		"stripped":              {told: "[2]"},
		"after a hand-off":      {prefills: 1, told: "[2]"},
		"kept":                  {thoughts: "beside", told: "<nil>"},
		"kept in a text":        {thoughts: "within", told: "[2]"}, // this engine's thoughts come beside it
		"it does not say":       {thoughts: "mute", told: "<nil>"},
		"with options":          {more: `,"chat_template_kwargs":{"a":1}`, told: "[2]"},
		"with tools":            {more: `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"`, told: "<nil>"},
		"a template of its own": {more: `,"chat_template":"x"`, told: "<nil>"},
		"none shares":           {alone: true, told: "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, test.prefills, 1, warming)
			for _, e := range c.roster.All() {
				if !test.alone {
					e.Unit.Store(64)
				}
			}
			stubs := slices.Concat(c.prefill, c.decode)
			asked := func() (all int64) {
				for _, s := range stubs {
					all += s.tokenized.Load()
				}
				return all
			}
			for _, s := range stubs {
				s.set(habits{thoughts: test.thoughts})
			}
			turn := func(number int) string {
				r := c.post(openai.PathChat, chat(fmt.Sprint("how are you ", number, strings.Repeat(" and you", 100)), thoughtful+test.more))
				if r.status != http.StatusOK {
					t.Fatalf("%d %s", r.status, r.body)
				}
				c.record(r)
				c.until("it was computed ahead", func() bool { return c.Metrics().Warm.Ends["warmed"] == uint64(number) })
				c.settled()
				return c.decode[0].told()
			}
			if told := turn(1); told != "<nil>" {
				t.Errorf("before anything is known it is told %s", told)
			}
			known := asked()
			if told := turn(2); told != test.told {
				t.Errorf("it is told %s, and not %s", told, test.told)
			}
			if asked() != known {
				t.Errorf("what is known is asked for again")
			}
			// What another template does is not known by that.
			c.post(openai.PathChat, chat("and now", thoughtful+`,"chat_template_kwargs":{"b":2}`))
			if told := c.decode[0].told(); told != "<nil>" {
				t.Errorf("of another template it is told %s", told)
			}
			c.settled()
		})
	}
}

// A gateway that computes nothing ahead learns all the same what is not worth keeping, once an
// answer had a thought.
func TestTemplatesAreLearnedWithoutComputingAhead(t *testing.T) {
	for thoughts, want := range map[string]string{"": "[2]", "beside": "<nil>", "mute": "<nil>"} {
		t.Run(thoughts, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, 0, 1, nil)
			e, s := c.roster.All()[0], c.decode[0]
			e.Unit.Store(64)
			s.set(habits{thoughts: thoughts})
			ask := func(text, more string) {
				t.Helper()
				r := c.post(openai.PathChat, chat(text, more))
				if r.status != http.StatusOK {
					t.Fatalf("%d %s", r.status, r.body)
				}
				c.record(r)
				c.settled()
			}
			learned := func() int {
				known, learning := c.warmer.Known()
				if learning {
					return -1
				}
				return known
			}
			ask("of nothing", "")
			if s.tokenized.Load() != 0 || learned() != 0 {
				t.Error("an answer without a thought says nothing of what becomes of thoughts")
			}
			ask("how are you", thoughtful)
			if told := s.told(); told != "<nil>" {
				t.Errorf("before anything is known it is told %s", told)
			}
			c.until("the template is known", func() bool { return learned() == 1 })
			asked := s.tokenized.Load()
			ask("and now", thoughtful)
			if told := s.told(); told != want {
				t.Errorf("it is told %s, and not %s", told, want)
			}
			c.until("no engine is asked", func() bool { return learned() == 1 })
			if s.tokenized.Load() != asked {
				t.Error("what is known is asked for again")
			}
			for end, n := range c.Metrics().Warm.Ends {
				if n != 0 {
					t.Errorf("%d next turns: %s", n, end)
				}
			}
		})
	}
}

// Engines of another model that share the cache are not asked: they would say that they know
// of no such model, and nothing would ever be learned of it.
func TestTemplatesAreLearnedFromEnginesOfTheirModel(t *testing.T) {
	c := newCell(t, 0, 2, nil)
	for i, e := range c.roster.All() { // in the order of c.decode
		e.Unit.Store(64)
		if i == 0 {
			other := *e.About.Load()
			other.Models = []string{"other"}
			e.About.Store(&other)
		}
	}
	c.post(openai.PathChat, chat("how are you", thoughtful))
	c.until("the template is known", func() bool {
		known, _ := c.warmer.Known()
		return known == 1
	})
	if asked := c.decode[0].tokenized.Load(); asked != 0 {
		t.Errorf("an engine of another model is asked %d times", asked)
	}
}

// What an engine could not say once is asked again, and learned then.
func TestTemplateOfAnEngineThatIsIllIsLearnedLater(t *testing.T) {
	for _, thoughts := range []string{"ill", "busy", "gone"} {
		t.Run(thoughts, func(t *testing.T) {
			c := newCell(t, 0, 1, warming)
			e, s := c.roster.All()[0], c.decode[0]
			e.Unit.Store(64)
			of := warm.Template{Model: "m", Beside: true}
			s.set(habits{thoughts: thoughts})
			c.warmer.Learn(t.Context(), e, of)
			if known, _ := c.warmer.Known(); known != 0 || s.tokenized.Load() == 0 {
				t.Errorf("%d templates are known of an engine that did not answer %d questions", known, s.tokenized.Load())
			}
			s.set(habits{})
			c.warmer.Learn(t.Context(), e, of)
			if end, _ := c.warmer.Learned(of); !slices.Equal(end, []uint32{2}) {
				t.Errorf("once it answers, %v is learned", end)
			}
		})
	}
}

// Thoughts beside a text and in it are learned of by themselves, whichever come first; where one
// of them is kept an engine keeps all.
func TestThoughtsBesideAndWithinAreTwo(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, kept := range []string{"", "within", "beside"} {
			t.Run(fmt.Sprint(kept, first), func(t *testing.T) {
				c := newCell(t, 0, 1, warming)
				e := c.roster.All()[0]
				e.Unit.Store(64)
				c.decode[0].set(habits{thoughts: kept})
				for _, beside := range []bool{first, !first} {
					c.warmer.Learn(t.Context(), e, warm.Template{Model: "m", Beside: beside})
				}
				request, fault := request.Parse(openai.PathChat, []byte(chat("hi", "")))
				if fault != nil {
					t.Fatal(fault)
				}
				if end := c.warmer.ThoughtEnd(request, e); (end == nil) != (kept != "") {
					t.Errorf("it is told %v", end)
				}
			})
		}
	}
}

// A template of which much is said, or that comes with its request, is not remembered, and no
// more of them are than there may be.
func TestTemplatesAreBounded(t *testing.T) {
	c := newCell(t, 0, 1, warming)
	c.roster.All()[0].Unit.Store(64)
	e := c.roster.All()[0]
	for n := range 3 * warm.MaxTemplates {
		c.warmer.Learn(t.Context(), e, warm.Template{Model: "m", Options: fmt.Sprintf(`{"n":%d}`, n), Beside: true})
		if known, _ := c.warmer.Known(); known != min(n+1, warm.MaxTemplates) {
			t.Fatalf("%d templates are known", known)
		}
	}
	long, fault := request.Parse(openai.PathChat, []byte(chat("hi", `,"chat_template_kwargs":{"a":"`+strings.Repeat("x", warm.MaxTemplateOptions)+`"}`)))
	if fault != nil {
		t.Fatal(fault)
	}
	if _, ok := warm.TemplateOf(long); ok {
		t.Error("options without end are remembered")
	}
}
