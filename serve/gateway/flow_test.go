package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"meridian/decide/placement"
	"meridian/serve/openai"
)

func lostAt(engine string) trouble {
	return trouble{kind: lost, reached: true, engine: engine, fault: openai.Unavailable("%s is gone", engine)}
}

// saidBy is a failure that the engine itself tells of.
func saidBy(engine string) trouble {
	t := lostAt(engine)
	t.answered = true
	return t
}

// Stories of requests, step by step.
func TestFlow(t *testing.T) {
	split := placement.Choice{Prefill: "p0", Decode: "d0"}
	unreached := trouble{kind: busy, engine: "d0", fault: openai.Overloaded(0, "full")}
	for name, story := range map[string]struct {
		tell func(f *flow) step
		want step
	}{
		"start":     {func(f *flow) step { return f.start() }, step{do: doPlace}},
		"split":     {func(f *flow) step { return f.placed(split, nil) }, step{do: doPrefill, engine: "p0"}},
		"direct":    {func(f *flow) step { return f.placed(placement.Choice{Decode: "d0"}, nil) }, step{do: doDecode, engine: "d0"}},
		"ticket":    {func(f *flow) step { f.placed(split, nil); return f.prefilled(true) }, step{do: doDecode, engine: "d0", ticket: true}},
		"no ticket": {func(f *flow) step { f.placed(split, nil); return f.prefilled(false) }, step{do: doDecode, engine: "d0"}},
		"prefill is lost": {
			func(f *flow) step { f.placed(split, nil); return f.prefillFailed(lostAt("p0")) },
			step{do: doPlacePrefix, engine: "d0"},
		},
		"every prefill is lost": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefillFailed(lostAt("p0"))
				f.placed(placement.Choice{Prefill: "p1", Decode: "d0"}, nil)
				return f.prefillFailed(lostAt("p1"))
			},
			step{do: doDecode, engine: "d0"},
		},
		"decode is lost with the ticket": {
			func(f *flow) step { f.placed(split, nil); f.prefilled(true); return f.decodeFailed(lostAt("d0")) },
			step{do: doPlace},
		},
		"decode never saw the ticket": {
			func(f *flow) step { f.placed(split, nil); f.prefilled(true); return f.decodeFailed(unreached) },
			step{do: doPlaceDecode},
		},
		"another takes the ticket": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefilled(true)
				f.decodeFailed(unreached)
				return f.placed(placement.Choice{Decode: "d1"}, nil)
			},
			step{do: doDecode, engine: "d1", ticket: true},
		},
		"a hand-off fails": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefilled(true)
				return f.decodeFailed(saidBy("d0"))
			},
			step{do: doDecode, engine: "d0"},
		},
		"an engine fails without a hand-off": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefilled(true)
				f.decodeFailed(saidBy("d0"))
				return f.decodeFailed(saidBy("d0"))
			},
			step{do: doPlace},
		},
		"decode is lost in the middle": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefilled(true)
				f.began(resumeExact, "")
				f.decodeFailed(lostAt("d0"))
				return f.placed(placement.Choice{Decode: "d1"}, nil)
			},
			step{do: doDecode, engine: "d1", resume: resumeExact},
		},
		"it leaves": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefilled(true)
				f.began(resumeExact, "")
				return f.moved("d0", true)
			},
			step{do: doMove},
		},
		"another goes on with the ticket": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", true)
				return f.placed(placement.Choice{Decode: "d1"}, nil)
			},
			step{do: doDecode, engine: "d1", ticket: true, moved: true, resume: resumeExact},
		},
		"it left with nothing to offer": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", false)
				return f.placed(placement.Choice{Decode: "d1"}, nil)
			},
			step{do: doDecode, engine: "d1", moved: true, resume: resumeExact},
		},
		"the receiver is lost": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", true)
				f.placed(placement.Choice{Decode: "d1"}, nil)
				f.decodeFailed(lostAt("d1"))
				return f.placed(placement.Choice{Decode: "d0"}, nil)
			},
			step{do: doDecode, engine: "d0", resume: resumeExact},
		},
		"the receiver is full": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", true)
				f.placed(placement.Choice{Decode: "d1"}, nil)
				f.decodeFailed(trouble{kind: busy, engine: "d1", fault: openai.Overloaded(0, "full")})
				return f.placed(placement.Choice{Decode: "d2"}, nil)
			},
			step{do: doDecode, engine: "d2", ticket: true, moved: true, resume: resumeExact},
		},
		"it goes back to where its cache is": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", true)
				f.placed(placement.Choice{Decode: "d1"}, nil)
				f.decodeFailed(trouble{kind: busy, engine: "d1", fault: openai.Overloaded(0, "full")})
				return f.placed(placement.Choice{Decode: "d0"}, nil)
			},
			step{do: doDecode, engine: "d0", moved: true, resume: resumeExact},
		},
		"where its cache is takes it back no more": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", true)
				f.placed(placement.Choice{Decode: "d0"}, nil)
				f.decodeFailed(trouble{kind: busy, engine: "d0", fault: openai.Overloaded(0, "full")})
				return f.placed(placement.Choice{Decode: "d1"}, nil)
			},
			step{do: doDecode, engine: "d1", ticket: true, moved: true, resume: resumeExact},
		},
		"where its cache is is lost": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", true)
				f.placed(placement.Choice{Decode: "d0"}, nil)
				f.decodeFailed(trouble{kind: lost, engine: "d0", fault: openai.Unavailable("it cannot be reached")})
				return f.placed(placement.Choice{Decode: "d1"}, nil)
			},
			step{do: doDecode, engine: "d1", resume: resumeExact},
		},
		"decode is full, and the prefill engine generates": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefilled(true)
				f.decodeFailed(unreached)
				return f.placed(placement.Choice{Decode: "p0"}, nil)
			},
			step{do: doDecode, engine: "p0"},
		},
		"another prefill engine generates": {
			func(f *flow) step {
				f.placed(split, nil)
				f.prefilled(true)
				f.decodeFailed(unreached)
				return f.placed(placement.Choice{Decode: "p1"}, nil)
			},
			step{do: doDecode, engine: "p1", ticket: true},
		},
	} {
		f := &flow{limits: usualLimits}
		if got := story.tell(f); got != story.want {
			t.Errorf("%s: got %+v, want %+v", name, got, story.want)
		}
	}
}

func TestFlowFails(t *testing.T) {
	for name, story := range map[string]struct {
		tell   func(f *flow) step
		status int
		says   string
	}{
		"nobody is there": {func(f *flow) step { return f.placed(placement.Choice{}, placement.ErrNoEngine) }, 503, "no engine serves"},
		"refused":         {func(f *flow) step { return f.decodeFailed(trouble{kind: refused, fault: openai.Invalid("", "bad")}) }, 400, "bad"},
		"prefill refuses": {func(f *flow) step { return f.prefillFailed(trouble{kind: refused, fault: openai.Invalid("", "bad")}) }, 400, "bad"},
		"cannot go on": {
			func(f *flow) step { f.began(resumeNever, "it is sampled"); return f.decodeFailed(lostAt("d0")) },
			503, "(d0 is gone), which cannot go on elsewhere: it is sampled",
		},
		"could not go on any more": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.cannotResume("odd")
				return f.decodeFailed(lostAt("d0"))
			}, 503, "odd",
		},
		"it leaves and cannot": {
			func(f *flow) step { f.began(resumeNever, "it is sampled"); return f.moved("d0", true) },
			503, "it is sampled",
		},
		"nobody goes on": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.decodeFailed(lostAt("d0"))
				return f.placed(placement.Choice{}, placement.ErrNoEngine)
			},
			503, "no other could go on",
		},
		"nobody has room": {
			func(f *flow) step {
				f.began(resumeExact, "")
				f.moved("d0", true)
				f.decodeFailed(trouble{kind: busy, engine: "d1", fault: openai.Overloaded(0, "full")})
				return f.placed(placement.Choice{}, placement.ErrNoEngine)
			},
			503, "no engine has room",
		},
	} {
		f := &flow{limits: usualLimits}
		got := story.tell(f)
		if got.do != doFail || got.fault.Status != story.status || !strings.Contains(got.fault.Message, story.says) {
			t.Errorf("%s: %+v %v", name, got, got.fault)
		}
	}
}

// Whatever happens, a request ends soon, never asks an engine again that failed
// it, but for one whose hand-off failed, without it and once, and for those that were full when
// the answer has begun, and never begins twice what a client has seen.
func TestFlowLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &flow{limits: usualLimits}
		next := f.start()
		failed, full := make(map[string]bool), make(map[string]bool)
		used := make(map[string]bool) // tickets by who may have used them
		tickets, moves, began := 0, 0, false
		some := func(t *rapid.T) trouble {
			kind := rapid.SampledFrom([]troubleKind{lost, lost, lost, busy, refused}).Draw(t, "kind")
			reached := kind == lost && rapid.Bool().Draw(t, "reached")
			answered := reached && rapid.Bool().Draw(t, "answered")
			return trouble{kind: kind, reached: reached, answered: answered, engine: next.engine, fault: openai.Unavailable("x")}
		}
		choose := func(prefill bool) (placement.Choice, error) {
			free := slices.DeleteFunc([]string{"0", "1", "2", "3"}, func(id string) bool { return f.avoids("d" + id) })
			if len(free) == 0 {
				return placement.Choice{}, placement.ErrNoEngine
			}
			c := placement.Choice{Decode: "d" + rapid.SampledFrom(free).Draw(t, "decode")}
			if prefill && rapid.Bool().Draw(t, "split") {
				for n := range 4 {
					if id := fmt.Sprintf("p%d", n); !f.avoids(id) {
						c.Prefill = id
					}
				}
			}
			return c, nil
		}
		for steps := 0; next.do != doEnd && next.do != doFail; steps++ {
			if steps > 40+2*usualLimits.waits {
				t.Fatal("it does not end")
			}
			if next.engine != "" && (failed[next.engine] || full[next.engine] && !began) && next.do != doPlacePrefix {
				t.Fatalf("%s failed and is asked again: %+v", next.engine, next)
			}
			switch next.do {
			case doPlace, doPlaceDecode, doMove:
				if next.do == doPlace && began {
					t.Fatal("a stream that has begun starts anew")
				}
				next = f.placed(choose(next.do == doPlace))
			case doPlacePrefix:
				if rapid.Bool().Draw(t, "nobody") {
					next = f.prefillGone()
					break
				}
				next = f.placed(placement.Choice{Prefill: "p9", Decode: next.engine}, nil)
			case doPrefill:
				if rapid.Bool().Draw(t, "prefill fails") {
					failed[next.engine] = true
					next = f.prefillFailed(some(t))
					break
				}
				tickets++
				next = f.prefilled(rapid.Bool().Draw(t, "ticket"))
			case doDecode:
				ticket := fmt.Sprint(tickets)
				if next.ticket && used[ticket] {
					t.Fatal("a ticket is used twice")
				}
				if (next.resume != resumeNever) != began {
					t.Fatalf("began: %v, and the step is %+v", began, next)
				}
				if rapid.Bool().Draw(t, "begins") {
					f.began(resumeExact, "")
					began = true
				}
				if rapid.Bool().Draw(t, "finishes") {
					next = f.finished()
					break
				}
				if began && rapid.Bool().Draw(t, "leaves") {
					if moves++; moves > 2*usualLimits.moves {
						t.Fatal("it moves without end")
					}
					used[ticket] = used[ticket] || next.ticket
					tickets++
					from := next.engine
					next = f.moved(from, rapid.Bool().Draw(t, "with a ticket"))
					failed[from] = f.avoids(from)
					break
				}
				trouble := some(t)
				used[ticket] = used[ticket] || next.ticket && trouble.reached
				if trouble.kind == busy {
					full[next.engine] = true
				} else {
					failed[next.engine] = !next.ticket || !trouble.answered || began
				}
				next = f.decodeFailed(trouble)
			}
		}
		if next.do == doFail && next.fault == nil {
			t.Fatal("it fails without saying why")
		}
	})
}
