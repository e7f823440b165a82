package gateway

import (
	"net/http"
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// flow is the life of one request, without I/O: every method takes in what
// happened and says what to do next. The shell does it and comes back.
type flow struct {
	limits flowLimits
	// avoid are engines that failed this request, by key; full are those that took no more,
	// which are asked again once the answer has begun.
	avoid, full []string

	decode  string // the engine that was chosen to generate
	offers  string // the engine whose ticket it is
	ticket  bool   // a prefill engine has offered, or is to offer, and no decode engine has asked yet
	begun   bool   // the client has something of the answer
	resume  resumeMode
	noWhy   string // why a stream that began could not go on elsewhere
	thinks  bool   // the client has a thought that goes on, after which no other engine does
	last    *trouble
	prefill int // legs that failed
	starts  int
	refused int // legs that engines did not take
	resumes int
	moves   int  // legs that ended for another engine to go on
	moving  bool // the last leg was one of them
}

// flowLimits bound how often a request tries again.
type flowLimits struct {
	prefills, starts, resumes, moves int
	// refusals are how many engines may take no more before the answer begins, waits how many
	// times one may afterwards: a client that has the beginning waits for the rest, and how long
	// is what ends that. Engines for whose room others are faster refuse some times a second.
	refusals, waits int
}

var usualLimits = flowLimits{prefills: 2, starts: 3, resumes: 4, moves: 4, refusals: 8, waits: 1024}

// resumeMode is how a stream goes on with another engine.
type resumeMode uint8

const (
	resumeNever  resumeMode = iota
	resumeExact             // resume_token_ids, of engines that sample by position
	resumeGreedy            // the tokens so far become part of the prompt
)

// resumable says how a stream of a request can go on elsewhere when an
// engine of that kind is lost, or why it cannot.
func resumable(c *request.Request, kind openai.EngineKind, maxContext int) (resumeMode, string) {
	switch {
	case !c.Stream:
		return resumeNever, "it is not a stream"
	case c.Whole:
		return resumeNever, "there are several answers at once"
	case kind == openai.KindMeridian:
		return resumeExact, ""
	case kind != openai.KindVLLM:
		return resumeNever, "this kind of engine does not tell which tokens it sent"
	case !c.Greedy:
		return resumeNever, "only an answer with temperature 0 comes out the same on another engine"
	case !c.Plain:
		return resumeNever, "the request asks for more than plain text"
	case c.Unlimited() && maxContext == 0:
		return resumeNever, "the request has no max_tokens, and the engine does not say how long its context is"
	}
	return resumeGreedy, ""
}

// doing is what the shell does next.
type doing uint8

const (
	doPlace       doing = iota + 1 // choose engines, then placed
	doPlacePrefix                  // choose another prefill engine for step.engine, then placed
	doPlaceDecode                  // choose a decode engine only, then placed
	doOffer                        // have the engine that was left offer prompt and answer so far, then offered
	doMove                         // choose the engine that the request moves to, then placed
	doPrefill                      // send a prefill leg, then prefilled or prefillFailed
	doDecode                       // send a decode leg, then began and finished or moved, or decodeFailed
	doFail                         // tell the client
	doEnd
)

// step says what to do, and with whom.
type step struct {
	do     doing
	engine string
	ticket bool // of a decode leg: with the ticket
	moved  bool // of a decode leg: the one before has left for it
	resume resumeMode
	fault  *openai.Error // of doFail
}

// troubleKind is why a leg did not work out.
type troubleKind uint8

const (
	// lost: the engine is gone, hangs or broke off.
	lost troubleKind = iota + 1
	// busy: it does not take more.
	busy
	// refused: no engine would do this.
	refused
)

// trouble is what went wrong with a leg.
type trouble struct {
	kind troubleKind
	// reached is false where the engine cannot have seen the request.
	reached bool
	// withdrawn: the gateway ended the leg itself; it says nothing of the engine.
	withdrawn bool
	// answered: the engine is well enough to say that this request failed.
	answered bool
	// priority: a refusal that has the word in it.
	priority bool
	engine   string
	fault    *openai.Error
}

// giveUp words the trouble of a leg that the gateway ended itself.
func (t *trouble) giveUp(why string) {
	if t != nil && t.withdrawn {
		t.fault = openai.Unavailable("%s", why)
	}
}

func (f *flow) start() step { return step{do: doPlace} }

// placed takes in a choice, or that there is none.
func (f *flow) placed(c placement.Choice, err error) step {
	switch {
	case err != nil:
		return f.fail()
	case f.begun: // an engine that has the cache itself needs no ticket, and may take no more
		return step{do: doDecode, engine: c.Decode, ticket: f.ticket && c.Decode != f.offers, moved: f.moving, resume: f.resume}
	case f.ticket && c.Decode == f.offers:
		f.ticket = false // it has the cache itself
	}
	f.decode = c.Decode
	if c.Prefill != "" && !f.ticket {
		f.offers = c.Prefill
		return step{do: doPrefill, engine: c.Prefill}
	}
	return step{do: doDecode, engine: c.Decode, ticket: f.ticket}
}

// prefilled takes in that a prompt is computed; without a ticket the decode
// engine computes it again.
func (f *flow) prefilled(ticket bool) step {
	f.ticket = ticket
	return step{do: doDecode, engine: f.decode, ticket: ticket}
}

// prefillFailed tries others, and then does without: a decode engine computes
// a prompt as well, only that others wait for it.
func (f *flow) prefillFailed(t trouble) step {
	if t.kind == refused {
		return step{do: doFail, fault: t.fault}
	}
	f.last, f.ticket = &t, false
	f.avoid = append(f.avoid, t.engine)
	f.prefill++
	if f.prefill >= f.limits.prefills {
		return step{do: doDecode, engine: f.decode}
	}
	return step{do: doPlacePrefix, engine: f.decode}
}

// prefillGone: no other engine is there to prefill.
func (f *flow) prefillGone() step { return step{do: doDecode, engine: f.decode} }

// promised: a prefill leg is on its way, and the decode leg need not wait for its
// end. It is in doubt until prefilled or prefillFailed.
func (f *flow) promised() step { return f.prefilled(true) }

// began: the client has got the first of the answer. From here on nothing can
// be said twice. why tells why mode is resumeNever.
func (f *flow) began(mode resumeMode, why string) {
	if !f.begun {
		f.begun, f.resume, f.noWhy = true, mode, why
		f.ticket = false // the prompt's, which has served
	}
}

// mayMove tells whether the request may leave its engine once more.
func (f *flow) mayMove() bool { return f.moves < f.limits.moves }

// moved takes in that a leg at an engine ended for another to go on, with a ticket for prompt
// and answer so far or without.
func (f *flow) moved(engine string, ticket bool) step {
	f.moves++
	if !f.begun || f.resume == resumeNever || f.moves > f.limits.moves {
		return f.decodeFailed(trouble{kind: lost, reached: true, engine: engine, fault: openai.Unavailable("the engine ended the answer for another to go on, and none can")})
	}
	f.ticket, f.offers, f.moving = ticket, engine, true
	if f.resume == resumeGreedy { // it was left, and has not been asked yet
		return step{do: doOffer, engine: engine}
	}
	return step{do: doMove}
}

// offered takes in whether the engine that was left has offered prompt and answer so far; t is
// why it failed, nil where it did not.
func (f *flow) offered(ticket bool, t *trouble) step {
	f.ticket = ticket
	if t != nil && t.kind == lost && !t.withdrawn {
		f.avoid = append(f.avoid, t.engine)
	}
	return step{do: doMove}
}

// cannotResume: something came that another engine could not go on from.
func (f *flow) cannotResume(why string) { f.resume, f.noWhy = resumeNever, why }

// stuck: another engine could not go on now.
func (f *flow) stuck() bool { return f.resume == resumeNever || f.thinks }

// decodeFailed takes in that a decode leg broke off.
func (f *flow) decodeFailed(t trouble) step {
	if t.kind == refused {
		return step{do: doFail, fault: t.fault}
	}
	f.last = &t
	if t.kind == busy {
		return f.crowded(t)
	}
	if f.ticket && t.answered && !f.begun {
		// Its hand-off failed, most likely: it computes the prompt itself.
		f.ticket = false
		return step{do: doDecode, engine: t.engine}
	}
	f.avoid = append(f.avoid, t.engine)
	// A ticket that an engine may have used opens nothing for another, nor does one of an engine
	// that is lost.
	f.ticket = f.ticket && !t.reached && t.engine != f.offers
	if f.begun {
		f.moving = false
		return f.goOn()
	}
	f.starts++
	if f.starts >= f.limits.starts {
		return f.fail()
	}
	if f.ticket {
		return step{do: doPlaceDecode}
	}
	return step{do: doPlace}
}

// crowded takes in that an engine took no more, and has not seen the request: what is on its
// way stays so. A client that has nothing yet is told when every engine has refused; one that
// has the beginning of its answer is served when one has room.
func (f *flow) crowded(t trouble) step {
	f.full = append(f.full, t.engine)
	f.refused++
	switch {
	case f.begun && (f.resume == resumeNever || f.refused > f.limits.waits), !f.begun && f.refused >= f.limits.refusals:
		return f.fail()
	case f.begun && f.moving:
		return step{do: doMove}
	case f.begun || f.ticket:
		return step{do: doPlaceDecode}
	}
	return step{do: doPlace}
}

// isRefused: the last engine that was asked took no more.
func (f *flow) isRefused() bool { return f.last != nil && f.last.kind == busy }

func (f *flow) goOn() step {
	f.resumes++
	if f.stuck() || f.resumes > f.limits.resumes {
		return f.fail()
	}
	return step{do: doPlaceDecode}
}

func (f *flow) finished() step { return step{do: doEnd} }

// avoids tells whether an engine is not to be asked again.
func (f *flow) avoids(key string) bool {
	return slices.Contains(f.avoid, key) || !f.begun && slices.Contains(f.full, key)
}

// retryAfter is how soon engines that were lost may be back.
const retryAfter = time.Second

// fail says what the client is told when everything was tried.
func (f *flow) fail() step {
	t := f.last
	switch {
	case t == nil:
		fault := openai.Unavailable("no engine serves this model now; try again").WithCode(openai.CodeEngineLost)
		fault.RetryAfter = retryAfter
		return step{do: doFail, fault: fault}
	case f.begun && f.stuck():
		if f.thinks {
			f.noWhy = "the model was thinking"
		}
		fault := openai.Unavailable("the engine was lost in the middle of the answer (%s), which cannot go on elsewhere: %s", t.fault.Message, f.noWhy)
		return step{do: doFail, fault: fault.WithCode(openai.CodeEngineLost)}
	case f.begun && t.kind == busy:
		fault := openai.Unavailable("no engine has room to go on with the answer (%s)", t.fault.Message)
		return step{do: doFail, fault: fault.WithCode(openai.CodeOverloaded)}
	case f.begun:
		fault := openai.Unavailable("the engine was lost in the middle of the answer (%s), and no other could go on", t.fault.Message)
		return step{do: doFail, fault: fault.WithCode(openai.CodeEngineLost)}
	case t.kind == busy:
		return step{do: doFail, fault: t.fault}
	}
	fault := openai.Unavailable("no engine could answer, the last one failed: %s", t.fault.Message).WithCode(openai.CodeEngineLost)
	fault.RetryAfter = retryAfter
	if t.fault.Status == http.StatusGatewayTimeout {
		fault.Status = http.StatusGatewayTimeout
	}
	return step{do: doFail, fault: fault}
}
