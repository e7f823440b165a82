package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

var (
	placedAt  = 1000 * kv.Second
	waitRules = Rules{EngineWait: 3 * kv.Second, RoomWait: 10 * kv.Second}
)

func lifeOf(r Rules) *Life {
	return &Life{Request: &request.Request{Tokens: 40}, Record: &ledger.Record{}, rules: r}
}

// A request waits for an engine once, and no longer than one that was lost may need to come back.
func TestAwaitsEngines(t *testing.T) {
	engines := []placement.Engine{{ID: "d", Role: placement.Decode}}
	for name, c := range map[string]struct {
		lost kv.Instant // before
		want *Wait
	}{
		"just lost":   {0, &Wait{Most: 3 * kv.Second}},
		"a while ago": {2 * kv.Second, &Wait{Most: kv.Second}},
		"long ago":    {60 * kv.Minute, nil},
		"not yet":     {-60 * kv.Minute, &Wait{Most: 3 * kv.Second}},
	} {
		l := lifeOf(waitRules)
		scene := Scene{Now: placedAt, Lost: placedAt - c.lost}
		next, wait := l.Place(l.route.Start(), scene)
		if diff := cmp.Diff(c.want, wait); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (next.Do == DoPlace) != (wait != nil) {
			t.Errorf("%s: with %v it goes on with %+v", name, wait, next)
		}
		if wait == nil {
			continue
		}
		scene.Now = scene.Now + wait.Most
		if next, wait := l.Place(next, scene); wait != nil || next.Do != DoFail {
			t.Errorf("%s: afterwards it waits %v, and does %+v", name, wait, next)
		}
		scene.Lost = scene.Now
		if _, wait := l.Place(l.route.Start(), scene); wait != nil {
			t.Errorf("%s: it waits %v once more", name, wait)
		}
		scene.Engines = engines
		if next, _ := l.Place(l.route.Start(), scene); next.Engine != "d" {
			t.Errorf("%s: an engine has come, and it does %+v", name, next)
		}
	}
}

// A stream that has begun waits for room from when it first found none, and until an engine has
// begun with it; then it goes where it is told to wait, or is told that there is no room.
func TestAwaitsRoom(t *testing.T) {
	l := lifeOf(waitRules)
	l.route.Began(ResumeExact, "")
	scene := Scene{Now: placedAt, Engines: []placement.Engine{{ID: "d", Role: placement.Decode, Full: true}}}
	s := Step{Do: DoPlaceDecode}
	for range 2 {
		next, wait := l.Place(s, scene)
		if diff := cmp.Diff(&Wait{Most: roomPoll, Room: true}, wait); diff != "" || next != s {
			t.Fatalf("%+v: %s", next, diff)
		}
	}
	scene.Now = placedAt + waitRules.RoomWait - kv.Millisecond
	if _, wait := l.Place(s, scene); wait == nil || wait.Most != kv.Millisecond {
		t.Errorf("at last it waits %v", wait)
	}
	scene.Now = placedAt + waitRules.RoomWait
	if next, wait := l.Place(s, scene); wait != nil || next.Engine != "d" {
		t.Errorf("an engine that only may be full is not asked: %+v, %v", next, wait)
	}
	l.route.DecodeFailed(Trouble{Kind: Busy, Engine: "d", Fault: openai.Overloaded(0, "full")})
	if next, wait := l.Place(s, scene); wait != nil || next.Do != DoFail {
		t.Errorf("one that has refused is asked again: %+v, %v", next, wait)
	}
	l.Arrived(placedAt, Beside{})
	if _, wait := l.Place(s, scene); wait == nil {
		t.Error("it waits no more after an engine had room")
	}
}

// A request that has left goes to the engine that it left for, or another, or back.
func TestPlacesMoves(t *testing.T) {
	well := func(id string) placement.Engine { return placement.Engine{ID: id, Role: placement.Decode} }
	full := func(id string) placement.Engine {
		return placement.Engine{ID: id, Role: placement.Decode, Full: true}
	}
	silent := func(id string) placement.Engine {
		return placement.Engine{ID: id, Role: placement.Decode, Doubtful: true}
	}
	kept := Passage{Why: ByBalance}
	for name, c := range map[string]struct {
		kind    openai.EngineKind
		passage Passage
		engines []placement.Engine
		want    string // "": it waits for room
	}{
		"as it was told":               {openai.KindMeridian, Passage{Why: ByDrain}, []placement.Engine{well("from"), well("to"), well("c")}, "to"},
		"another":                      {openai.KindMeridian, Passage{Why: ByDrain}, []placement.Engine{well("from"), full("to"), well("c")}, "c"},
		"that engine is silent":        {openai.KindMeridian, Passage{Why: ByDrain}, []placement.Engine{well("from"), silent("to"), well("c")}, "c"},
		"by choice, and back":          {openai.KindMeridian, kept, []placement.Engine{well("from"), full("to"), well("c")}, "from"},
		"by choice, and elsewhere":     {openai.KindMeridian, kept, []placement.Engine{full("from"), full("to"), well("c")}, "c"},
		"back, though it is to go":     {openai.KindMeridian, Passage{Why: ByDrain}, []placement.Engine{well("from"), full("to")}, "from"},
		"its cache is where it was":    {openai.KindVLLM, kept, []placement.Engine{well("from"), well("to")}, "from"},
		"its cache is where it queues": {openai.KindVLLM, Passage{Why: ByBalance, Queued: true}, []placement.Engine{well("from"), well("to")}, "to"},
		"its cache was offered":        {openai.KindVLLM, Passage{Why: ByBalance, Offered: true}, []placement.Engine{well("from"), well("to")}, "to"},
		"none has room":                {openai.KindMeridian, Passage{Why: ByDrain}, []placement.Engine{full("from"), full("to")}, ""},
	} {
		l := lifeOf(waitRules)
		l.route.Began(ResumeExact, "")
		l.answer.Kind = c.kind
		l.passage = &c.passage
		l.passage.From, l.passage.To = "from", "to"
		next, wait := l.Place(l.route.Moved("from", true), Scene{Now: placedAt, Engines: c.engines})
		if c.want == "" {
			if wait == nil || next.Do != DoPlaceDecode {
				t.Errorf("%s: %+v, %v", name, next, wait)
			}
		} else if next.Do != DoDecode || next.Engine != c.want {
			t.Errorf("%s: %+v, want %s", name, next, c.want)
		}
	}
}

// What is wanted follows the answer: engines that were full are asked again once it has begun,
// of the kind that began it.
func TestWants(t *testing.T) {
	l := lifeOf(Rules{})
	l.route.DecodeFailed(Trouble{Kind: Busy, Engine: "full", Fault: openai.Overloaded(0, "full")})
	l.route.DecodeFailed(lostAt("lost"))
	if w := l.Wants(); !cmp.Equal(w.Avoid, []string{"lost", "full"}) || w.Kind != nil {
		t.Errorf("before it begins: %+v", w)
	}
	l.answer.Kind = openai.KindVLLM
	l.route.Began(ResumeExact, "")
	if w := l.Wants(); !cmp.Equal(w.Avoid, []string{"lost"}) || w.Kind == nil || *w.Kind != openai.KindVLLM {
		t.Errorf("afterwards: %+v", w)
	}
}
