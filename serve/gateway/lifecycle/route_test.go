package lifecycle

import (
	"strings"
	"testing"

	"meridian/decide/placement"
	"meridian/serve/openai"
)

func lostAt(engine string) Trouble {
	return Trouble{Kind: Lost, Reached: true, Engine: engine, Fault: openai.Unavailable("%s is gone", engine)}
}

// saidBy is a failure that the engine itself tells of.
func saidBy(engine string) Trouble {
	t := lostAt(engine)
	t.Answered = true
	return t
}

// Stories of requests, step by step.
func TestFlow(t *testing.T) {
	split := placement.Choice{Prefill: "p0", Decode: "d0"}
	unreached := Trouble{Kind: Busy, Engine: "d0", Fault: openai.Overloaded(0, "full")}
	for name, story := range map[string]struct {
		tell func(f *Route) Step
		want Step
	}{
		"start":     {func(f *Route) Step { return f.Start() }, Step{Do: DoPlace}},
		"split":     {func(f *Route) Step { return f.Placed(split, nil) }, Step{Do: DoPrefill, Engine: "p0"}},
		"direct":    {func(f *Route) Step { return f.Placed(placement.Choice{Decode: "d0"}, nil) }, Step{Do: DoDecode, Engine: "d0"}},
		"ticket":    {func(f *Route) Step { f.Placed(split, nil); return f.Prefilled(true) }, Step{Do: DoDecode, Engine: "d0", Ticket: true}},
		"no ticket": {func(f *Route) Step { f.Placed(split, nil); return f.Prefilled(false) }, Step{Do: DoDecode, Engine: "d0"}},
		"prefill is lost": {
			func(f *Route) Step { f.Placed(split, nil); return f.PrefillFailed(lostAt("p0")) },
			Step{Do: DoPlacePrefix, Engine: "d0"},
		},
		"every prefill is lost": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.PrefillFailed(lostAt("p0"))
				f.Placed(placement.Choice{Prefill: "p1", Decode: "d0"}, nil)
				return f.PrefillFailed(lostAt("p1"))
			},
			Step{Do: DoDecode, Engine: "d0"},
		},
		"decode is lost with the ticket": {
			func(f *Route) Step { f.Placed(split, nil); f.Prefilled(true); return f.DecodeFailed(lostAt("d0")) },
			Step{Do: DoPlace},
		},
		"decode never saw the ticket": {
			func(f *Route) Step { f.Placed(split, nil); f.Prefilled(true); return f.DecodeFailed(unreached) },
			Step{Do: DoPlaceDecode},
		},
		"another takes the ticket": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.Prefilled(true)
				f.DecodeFailed(unreached)
				return f.Placed(placement.Choice{Decode: "d1"}, nil)
			},
			Step{Do: DoDecode, Engine: "d1", Ticket: true},
		},
		"a hand-off fails": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.Prefilled(true)
				return f.DecodeFailed(saidBy("d0"))
			},
			Step{Do: DoDecode, Engine: "d0"},
		},
		"an engine fails without a hand-off": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.Prefilled(true)
				f.DecodeFailed(saidBy("d0"))
				return f.DecodeFailed(saidBy("d0"))
			},
			Step{Do: DoPlace},
		},
		"decode is lost in the middle": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.Prefilled(true)
				f.Began(ResumeExact, "")
				f.DecodeFailed(lostAt("d0"))
				return f.Placed(placement.Choice{Decode: "d1"}, nil)
			},
			Step{Do: DoDecode, Engine: "d1", Resume: ResumeExact},
		},
		"it leaves": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.Prefilled(true)
				f.Began(ResumeExact, "")
				return f.Moved("d0", true)
			},
			Step{Do: DoMove},
		},
		"another goes on with the ticket": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", true)
				return f.Placed(placement.Choice{Decode: "d1"}, nil)
			},
			Step{Do: DoDecode, Engine: "d1", Ticket: true, Moved: true, Resume: ResumeExact},
		},
		"it left with nothing to offer": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", false)
				return f.Placed(placement.Choice{Decode: "d1"}, nil)
			},
			Step{Do: DoDecode, Engine: "d1", Moved: true, Resume: ResumeExact},
		},
		"the receiver is lost": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", true)
				f.Placed(placement.Choice{Decode: "d1"}, nil)
				f.DecodeFailed(lostAt("d1"))
				return f.Placed(placement.Choice{Decode: "d0"}, nil)
			},
			Step{Do: DoDecode, Engine: "d0", Resume: ResumeExact},
		},
		"the receiver is full": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", true)
				f.Placed(placement.Choice{Decode: "d1"}, nil)
				f.DecodeFailed(Trouble{Kind: Busy, Engine: "d1", Fault: openai.Overloaded(0, "full")})
				return f.Placed(placement.Choice{Decode: "d2"}, nil)
			},
			Step{Do: DoDecode, Engine: "d2", Ticket: true, Moved: true, Resume: ResumeExact},
		},
		"it goes back to where its cache is": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", true)
				f.Placed(placement.Choice{Decode: "d1"}, nil)
				f.DecodeFailed(Trouble{Kind: Busy, Engine: "d1", Fault: openai.Overloaded(0, "full")})
				return f.Placed(placement.Choice{Decode: "d0"}, nil)
			},
			Step{Do: DoDecode, Engine: "d0", Moved: true, Resume: ResumeExact},
		},
		"where its cache is takes it back no more": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", true)
				f.Placed(placement.Choice{Decode: "d0"}, nil)
				f.DecodeFailed(Trouble{Kind: Busy, Engine: "d0", Fault: openai.Overloaded(0, "full")})
				return f.Placed(placement.Choice{Decode: "d1"}, nil)
			},
			Step{Do: DoDecode, Engine: "d1", Ticket: true, Moved: true, Resume: ResumeExact},
		},
		"where its cache is is lost": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", true)
				f.Placed(placement.Choice{Decode: "d0"}, nil)
				f.DecodeFailed(Trouble{Kind: Lost, Engine: "d0", Fault: openai.Unavailable("it cannot be reached")})
				return f.Placed(placement.Choice{Decode: "d1"}, nil)
			},
			Step{Do: DoDecode, Engine: "d1", Resume: ResumeExact},
		},
		"decode is full, and the prefill engine generates": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.Prefilled(true)
				f.DecodeFailed(unreached)
				return f.Placed(placement.Choice{Decode: "p0"}, nil)
			},
			Step{Do: DoDecode, Engine: "p0"},
		},
		"another prefill engine generates": {
			func(f *Route) Step {
				f.Placed(split, nil)
				f.Prefilled(true)
				f.DecodeFailed(unreached)
				return f.Placed(placement.Choice{Decode: "p1"}, nil)
			},
			Step{Do: DoDecode, Engine: "p1", Ticket: true},
		},
	} {
		f := &Route{}
		if got := story.tell(f); got != story.want {
			t.Errorf("%s: got %+v, want %+v", name, got, story.want)
		}
	}
}

func TestFlowFails(t *testing.T) {
	for name, story := range map[string]struct {
		tell   func(f *Route) Step
		status int
		says   string
	}{
		"nobody is there": {func(f *Route) Step { return f.Placed(placement.Choice{}, placement.ErrNoEngine) }, 503, "no engine serves"},
		"refused":         {func(f *Route) Step { return f.DecodeFailed(Trouble{Kind: Refused, Fault: openai.Invalid("", "bad")}) }, 400, "bad"},
		"prefill refuses": {func(f *Route) Step { return f.PrefillFailed(Trouble{Kind: Refused, Fault: openai.Invalid("", "bad")}) }, 400, "bad"},
		"cannot go on": {
			func(f *Route) Step { f.Began(ResumeNever, "it is sampled"); return f.DecodeFailed(lostAt("d0")) },
			503, "(d0 is gone), which cannot go on elsewhere: it is sampled",
		},
		"could not go on any more": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.CannotResume("odd")
				return f.DecodeFailed(lostAt("d0"))
			}, 503, "odd",
		},
		"it leaves and cannot": {
			func(f *Route) Step { f.Began(ResumeNever, "it is sampled"); return f.Moved("d0", true) },
			503, "it is sampled",
		},
		"nobody goes on": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.DecodeFailed(lostAt("d0"))
				return f.Placed(placement.Choice{}, placement.ErrNoEngine)
			},
			503, "no other could go on",
		},
		"nobody has room": {
			func(f *Route) Step {
				f.Began(ResumeExact, "")
				f.Moved("d0", true)
				f.DecodeFailed(Trouble{Kind: Busy, Engine: "d1", Fault: openai.Overloaded(0, "full")})
				return f.Placed(placement.Choice{}, placement.ErrNoEngine)
			},
			503, "no engine has room",
		},
	} {
		f := &Route{}
		got := story.tell(f)
		if got.Do != DoFail || got.Fault.Status != story.status || !strings.Contains(got.Fault.Message, story.says) {
			t.Errorf("%s: %+v %v", name, got, got.Fault)
		}
	}
}
