// Package lifecycle is the life of one request: what to do next, when legs fail, leave their
// engine or find no room, and what its times come to. It sends nothing and waits for nothing;
// times are arguments.
//
//	place ─► prefill ─► decode ──────────────► end
//	  ▲  ╲      │ lost, busy: another prefill engine, else none
//	  │   ╲─────┼─► decode
//	  │         │ lost before the first token: from the start, elsewhere
//	  ├─────────┘
//	  └── lost after it: goes on elsewhere with the tokens so far, where that is
//	      exact, else the client is told
package lifecycle

import (
	"slices"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Route is where one request goes: every method takes in what happened and says what to
// do next. The gateway does it and comes back.
type Route struct {
	// Avoid are engines that failed this request, by key; full are those that took no more,
	// which are asked again once the answer has begun.
	Avoid, full []string

	Decode  string // the engine that was chosen to generate
	Offers  string // the engine whose ticket it is
	Ticket  bool   // a prefill engine has offered, or is to offer, and no decode engine has asked yet
	Begun   bool   // the client has something of the answer
	Resume  ResumeMode
	noWhy   string // why a stream that began could not go on elsewhere
	Thinks  bool   // the client has a thought that goes on, after which no other engine does
	last    *Trouble
	prefill int // legs that failed
	starts  int
	refused int // legs that engines did not take
	resumes int
	moves   int  // legs that ended for another engine to go on
	moving  bool // the last leg was one of them
}

// Bounds on how often a request tries again.
const (
	maxPrefills = 2
	maxStarts   = 3
	maxResumes  = 4
	// MaxMoves is how often a request may leave its engine.
	MaxMoves = 4
	// maxRefusals is how many engines may take no more before the answer begins, maxWaits how many
	// times one may afterwards: a client that has the beginning waits for the rest, and how long
	// is what ends that. Engines for whose room others are faster refuse some times a second.
	maxRefusals = 8
	maxWaits    = 1024
)

// ResumeMode is how a stream goes on with another engine.
type ResumeMode uint8

const (
	ResumeNever  ResumeMode = iota
	ResumeExact             // resume_token_ids, of engines that sample by position
	ResumeGreedy            // the tokens so far become part of the prompt
)

// Resumable says how a stream of a request can go on elsewhere when an
// engine of that kind is lost, or why it cannot.
func Resumable(c *request.Request, kind openai.EngineKind, maxContext int) (ResumeMode, string) {
	switch {
	case !c.Stream:
		return ResumeNever, "it is not a stream"
	case c.Whole:
		return ResumeNever, "there are several answers at once"
	case kind == openai.KindMeridian:
		return ResumeExact, ""
	case kind != openai.KindVLLM:
		return ResumeNever, "this kind of engine does not tell which tokens it sent"
	case !c.Greedy:
		return ResumeNever, "only an answer with temperature 0 comes out the same on another engine"
	case !c.Plain:
		return ResumeNever, "the request asks for more than plain text"
	case c.Unlimited() && maxContext == 0:
		return ResumeNever, "the request has no max_tokens, and the engine does not say how long its context is"
	}
	return ResumeGreedy, ""
}

// Doing is what the gateway does next.
type Doing uint8

const (
	DoPlace       Doing = iota + 1 // choose engines, then Place
	DoPlacePrefix                  // choose another prefill engine for Step.Engine, then Place
	DoPlaceDecode                  // choose a decode engine only, then Place
	DoOffer                        // have the engine that was left offer prompt and answer so far, then OfferEnded
	DoMove                         // choose the engine that the request moves to, then Place
	DoPrefill                      // send a prefill leg, then PrefillEnded; or Promise, and the leg beside the next
	DoEndPrefill                   // wait for the promised prefill leg, then PrefillEnded
	DoDecode                       // send a decode leg, then DecodeEnded
	DoFail                         // tell the client
	DoEnd
)

// Step says what to do, and with whom.
type Step struct {
	Do     Doing
	Engine string
	Ticket bool // of a decode leg: with the ticket
	Moved  bool // of a decode leg: the one before has left for it
	Resume ResumeMode
	Fault  *openai.Error // of DoFail
}

// TroubleKind is why a leg did not work out.
type TroubleKind uint8

const (
	// Lost: the engine is gone, hangs or broke off.
	Lost TroubleKind = iota + 1
	// Busy: it does not take more.
	Busy
	// Refused: no engine would do this.
	Refused
)

// Trouble is what went wrong with a leg.
type Trouble struct {
	Kind TroubleKind
	// Reached is false where the engine cannot have seen the request.
	Reached bool
	// Withdrawn: the gateway ended the leg itself; it says nothing of the engine.
	Withdrawn bool
	// Answered: the engine is well enough to say that this request failed.
	Answered bool
	// Priority: a refusal that has the word in it.
	Priority bool
	Engine   string
	Fault    *openai.Error
}

// GiveUp words the trouble of a leg that the gateway ended itself.
func (t *Trouble) GiveUp(why string) {
	if t != nil && t.Withdrawn {
		t.Fault = openai.Unavailable("%s", why)
	}
}

// Start is the first step.
func (f *Route) Start() Step { return Step{Do: DoPlace} }

// Placed takes in a choice, or that there is none.
func (f *Route) Placed(c placement.Choice, err error) Step {
	switch {
	case err != nil:
		return f.fail()
	case f.Begun: // an engine that has the cache itself needs no ticket, and may take no more
		return Step{Do: DoDecode, Engine: c.Decode, Ticket: f.Ticket && c.Decode != f.Offers, Moved: f.moving, Resume: f.Resume}
	case f.Ticket && c.Decode == f.Offers:
		f.Ticket = false // it has the cache itself
	}
	f.Decode = c.Decode
	if c.Prefill != "" && !f.Ticket {
		f.Offers = c.Prefill
		return Step{Do: DoPrefill, Engine: c.Prefill}
	}
	return Step{Do: DoDecode, Engine: c.Decode, Ticket: f.Ticket}
}

// Prefilled takes in that a prompt is computed; without a ticket the decode
// engine computes it again.
func (f *Route) Prefilled(ticket bool) Step {
	f.Ticket = ticket
	return Step{Do: DoDecode, Engine: f.Decode, Ticket: ticket}
}

// PrefillFailed tries others, and then does without: a decode engine computes
// a prompt as well, only that others wait for it.
func (f *Route) PrefillFailed(t Trouble) Step {
	if t.Kind == Refused {
		return Step{Do: DoFail, Fault: t.Fault}
	}
	f.last, f.Ticket = &t, false
	f.Avoid = append(f.Avoid, t.Engine)
	f.prefill++
	if f.prefill >= maxPrefills {
		return Step{Do: DoDecode, Engine: f.Decode}
	}
	return Step{Do: DoPlacePrefix, Engine: f.Decode}
}

// PrefillGone: no other engine is there to prefill.
func (f *Route) PrefillGone() Step { return Step{Do: DoDecode, Engine: f.Decode} }

// Began: the client has got the first of the answer. From here on nothing can
// be said twice. why tells why mode is ResumeNever.
func (f *Route) Began(mode ResumeMode, why string) {
	if !f.Begun {
		f.Begun, f.Resume, f.noWhy = true, mode, why
		f.Ticket = false // the prompt's, which has served
	}
}

// MayMove tells whether the request may leave its engine once more.
func (f *Route) MayMove() bool { return f.moves < MaxMoves }

// Moved takes in that a leg at an engine ended for another to go on, with a ticket for prompt
// and answer so far or without.
func (f *Route) Moved(engine string, ticket bool) Step {
	f.moves++
	if !f.Begun || f.Resume == ResumeNever || f.moves > MaxMoves {
		return f.DecodeFailed(Trouble{Kind: Lost, Reached: true, Engine: engine, Fault: openai.Unavailable("the engine ended the answer for another to go on, and none can")})
	}
	f.Ticket, f.Offers, f.moving = ticket, engine, true
	if f.Resume == ResumeGreedy { // it was left, and has not been asked yet
		return Step{Do: DoOffer, Engine: engine}
	}
	return Step{Do: DoMove}
}

// Offered takes in whether the engine that was left has offered prompt and answer so far; t is
// why it failed, nil where it did not.
func (f *Route) Offered(ticket bool, t *Trouble) Step {
	f.Ticket = ticket
	if t != nil && t.Kind == Lost && !t.Withdrawn {
		f.Avoid = append(f.Avoid, t.Engine)
	}
	return Step{Do: DoMove}
}

// CannotResume: something came that another engine could not go on from.
func (f *Route) CannotResume(why string) { f.Resume, f.noWhy = ResumeNever, why }

// stuck: another engine could not go on now.
func (f *Route) stuck() bool { return f.Resume == ResumeNever || f.Thinks }

// DecodeFailed takes in that a decode leg broke off.
func (f *Route) DecodeFailed(t Trouble) Step {
	if t.Kind == Refused {
		return Step{Do: DoFail, Fault: t.Fault}
	}
	f.last = &t
	if t.Kind == Busy {
		return f.crowded(t)
	}
	if f.Ticket && t.Answered && !f.Begun {
		// Its hand-off failed, most likely: it computes the prompt itself.
		f.Ticket = false
		return Step{Do: DoDecode, Engine: t.Engine}
	}
	f.Avoid = append(f.Avoid, t.Engine)
	// A ticket that an engine may have used opens nothing for another, nor does one of an engine
	// that is lost.
	f.Ticket = f.Ticket && !t.Reached && t.Engine != f.Offers
	if f.Begun {
		f.moving = false
		return f.goOn()
	}
	f.starts++
	if f.starts >= maxStarts {
		return f.fail()
	}
	if f.Ticket {
		return Step{Do: DoPlaceDecode}
	}
	return Step{Do: DoPlace}
}

// crowded takes in that an engine took no more, and has not seen the request: what is on its
// way stays so. A client that has nothing yet is told when every engine has refused; one that
// has the beginning of its answer is served when one has room.
func (f *Route) crowded(t Trouble) Step {
	f.full = append(f.full, t.Engine)
	f.refused++
	switch {
	case f.Begun && (f.Resume == ResumeNever || f.refused > maxWaits), !f.Begun && f.refused >= maxRefusals:
		return f.fail()
	case f.Begun && f.moving:
		return Step{Do: DoMove}
	case f.Begun || f.Ticket:
		return Step{Do: DoPlaceDecode}
	}
	return Step{Do: DoPlace}
}

// IsRefused: the last engine that was asked took no more.
func (f *Route) IsRefused() bool { return f.last != nil && f.last.Kind == Busy }

func (f *Route) goOn() Step {
	f.resumes++
	if f.stuck() || f.resumes > maxResumes {
		return f.fail()
	}
	return Step{Do: DoPlaceDecode}
}

// Finished takes in that the answer is complete.
func (f *Route) Finished() Step { return Step{Do: DoEnd} }

// Avoids tells whether an engine is not to be asked again.
func (f *Route) Avoids(key string) bool {
	return slices.Contains(f.avoided(), key)
}

// avoided are the engines that are not to be asked again.
func (f *Route) avoided() []string {
	if f.Begun {
		return f.Avoid
	}
	return slices.Concat(f.Avoid, f.full)
}

// fail says what the client is told when everything was tried.
func (f *Route) fail() Step {
	t := f.last
	switch {
	case t == nil:
		fault := openai.Unavailable("no engine serves this model now; try again").WithCode(openai.CodeEngineLost)
		fault.RetryAfter = openai.EngineRetry
		return Step{Do: DoFail, Fault: fault}
	case f.Begun && f.stuck():
		if f.Thinks {
			f.noWhy = "the model was thinking"
		}
		fault := openai.Unavailable("the engine was lost in the middle of the answer (%s), which cannot go on elsewhere: %s", t.Fault.Message, f.noWhy)
		return Step{Do: DoFail, Fault: fault.WithCode(openai.CodeEngineLost)}
	case f.Begun && t.Kind == Busy:
		fault := openai.Unavailable("no engine has room to go on with the answer (%s)", t.Fault.Message)
		return Step{Do: DoFail, Fault: fault.WithCode(openai.CodeOverloaded)}
	case f.Begun:
		fault := openai.Unavailable("the engine was lost in the middle of the answer (%s), and no other could go on", t.Fault.Message)
		return Step{Do: DoFail, Fault: fault.WithCode(openai.CodeEngineLost)}
	case t.Kind == Busy:
		return Step{Do: DoFail, Fault: t.Fault}
	}
	fault := openai.Unavailable("no engine could answer, the last one failed: %s", t.Fault.Message).WithCode(openai.CodeEngineLost)
	fault.RetryAfter = openai.EngineRetry
	if t.Fault.Status == openai.StatusGatewayTimeout {
		fault.Status = openai.StatusGatewayTimeout
	}
	return Step{Do: DoFail, Fault: fault}
}
