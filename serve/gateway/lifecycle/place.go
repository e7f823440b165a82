package lifecycle

import (
	"slices"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Rules are the options of a gateway that its lives go by.
type Rules struct {
	Place placement.Options
	// NoResume: going on with another engine is turned off.
	NoResume bool
	// EngineWait is for how long a request waits for an engine to come, and RoomWait for how
	// long one that has begun waits for an engine to have room.
	EngineWait, RoomWait kv.Instant
	// PromiseTokens: a decode engine is promised the cache of a prefill leg where no more tokens
	// wait, with the prompt's.
	PromiseTokens int
	// MoveAtThinkEnd: a request whose thought has ended leaves for an engine that has less to do.
	MoveAtThinkEnd bool
}

// Wait is for news of engines, and for a time at most.
type Wait struct {
	Most kv.Instant
	// Room: the client has the beginning of an answer that stands still.
	Room bool
}

// Scene is what engines are like when a request is placed.
type Scene struct {
	Now     kv.Instant
	Engines []placement.Engine // those that Wants asks for
	Lost    kv.Instant         // when an engine was lost last
}

// Wants says which engines the request may be placed on now.
func (l *Life) Wants() request.Wanted {
	w := request.Wanted{Request: l.Request, Avoid: l.route.avoided(), Spare: l.maySpare()}
	if l.route.Begun {
		w.Kind = &l.answer.Kind
	}
	return w
}

// Decode is the engine that was chosen to generate, by its key.
func (l *Life) Decode() string { return l.route.Decode }

// Place chooses engines, for a step that says so, and returns the next. With a wait that is to
// be placed afterwards.
func (l *Life) Place(s Step, scene Scene) (Step, *Wait) {
	switch s.Do {
	case DoPlacePrefix:
		return l.placePrefill(s.Engine, scene), nil
	case DoMove:
		if to := l.placeMove(scene); to != "" {
			return l.route.Placed(placement.Choice{Decode: to}, nil), nil
		}
		s.Do = DoPlaceDecode
	}
	asked := l.Request.Placement()
	asked.Phase = l.phase()
	asked.Overflows = l.route.Begun || l.route.IsRefused()
	asked.Whole = asked.Whole || s.Do == DoPlaceDecode
	choice, err := placement.Choose(scene.Engines, asked, l.rules.Place)
	switch {
	case err != nil:
		if wait := l.awaitEngine(scene); wait != nil {
			return s, wait
		}
		return l.route.Placed(choice, err), nil
	case l.route.Begun && isFull(scene.Engines, choice.Decode):
		if wait := l.awaitRoom(scene.Now); wait != nil {
			return s, wait
		}
		if l.route.IsRefused() {
			return l.route.Placed(choice, placement.ErrNoEngine), nil
		}
	}
	l.engineUntil = 0
	l.effect(Placed{l.choose(scene.Engines, choice)})
	l.placed(scene, choice, s.Do == DoPlaceDecode)
	return l.route.Placed(choice, nil), nil
}

// placed takes in engines that were chosen.
func (l *Life) placed(scene Scene, c placement.Choice, decodeOnly bool) {
	l.belief.Placed(c)
	if !decodeOnly || !l.route.Begun && c.DecodeWhy.Kind == placement.DecodeIsFull {
		l.Record.Placement = scene.named(c).String()
	}
}

// placePrefill chooses who computes the prompt for a decode engine that was chosen before.
func (l *Life) placePrefill(decode string, scene Scene) Step {
	c, ok := placement.ChoosePrefill(scene.Engines, decode, l.Request.Placement(), l.rules.Place)
	if !ok {
		return l.countFallBack(l.route.PrefillGone())
	}
	l.placed(scene, c, false)
	return l.route.Placed(c, nil)
}

// countFallBack counts a prompt that was to be handed over, where the next step
// has the decode engine compute it.
func (l *Life) countFallBack(next Step) Step {
	if next.Do == DoDecode && !next.Ticket {
		l.effect(CountFellBack)
	}
	return next
}

// placeMove chooses who goes on with a request that has left: the engine that it left for, or
// another, and the one that it left where the others are full or gone; "" where it is, too.
func (l *Life) placeMove(scene Scene) string {
	p := l.passage
	mayReturn := hasRoom(scene.Engines, p.From)
	if !p.Offered && !p.Queued && !p.Why.Leaves() && l.answer.Kind != openai.KindMeridian && mayReturn {
		return p.From // its cache is there, and nowhere else
	}
	others := slices.DeleteFunc(slices.Clone(scene.Engines), func(e placement.Engine) bool { return e.ID == p.From })
	if hasRoom(others, p.To) {
		return p.To
	}
	// Who left by choice is no worse off where it was than with any other.
	asked := placement.Request{Turn: l.Request.Turn, Phase: l.phase()}
	if to, why, ok := placement.Move(others, p.From, asked, l.rules.Place, true, 0); ok && (p.Why.Leaves() || !mayReturn) {
		p.Record.Placement = why.String()
		return to
	}
	if mayReturn {
		return p.From
	}
	return ""
}

// awaitEngine waits where no engine is there, once and not for longer than one that was lost may
// need to come back: after that there is none to wait for. nil: it has waited.
func (l *Life) awaitEngine(scene Scene) *Wait {
	if l.engineUntil == 0 {
		l.engineUntil = scene.Lost + l.rules.EngineWait
		if most := scene.Now + l.rules.EngineWait; most < l.engineUntil {
			l.engineUntil = most
		}
	}
	left := l.engineUntil - scene.Now
	if l.waited = l.waited || left <= 0; l.waited {
		return nil
	}
	return &Wait{Most: left}
}

// Engines that take no more. Before an answer begins, a request goes to another decode engine;
// where all are full, a prefill engine generates until one has room, as the request can leave
// it then. An answer that has begun goes back to where it was, or waits.
//
//	            429                  all full                room
//	decode ─────────► another decode ────────► prefill engine ─────► moves to decode

// roomPoll is how often those that wait look whether an engine has room.
const roomPoll = 50 * kv.Millisecond

// awaitRoom waits a moment for an engine to have room or to come. nil: the stream has waited as
// long as a request may.
func (l *Life) awaitRoom(now kv.Instant) *Wait {
	if l.roomUntil == 0 {
		l.roomUntil = now + l.rules.RoomWait
	}
	if left := l.roomUntil - now; left > 0 {
		return &Wait{Most: min(roomPoll, left), Room: true}
	}
	return nil
}

// isFull tells of an engine among others whether it took no more lately.
func isFull(engines []placement.Engine, key string) bool {
	return slices.ContainsFunc(engines, func(e placement.Engine) bool { return e.ID == key && e.Full })
}

// hasRoom tells of an engine whether it is among others, well, and took more lately.
func hasRoom(engines []placement.Engine, key string) bool {
	return slices.ContainsFunc(engines, func(e placement.Engine) bool { return e.ID == key && !e.Doubtful && !e.Full })
}

// named puts people's names of engines into a choice.
func (s Scene) named(c placement.Choice) placement.Choice {
	for _, e := range s.Engines {
		for _, key := range []*string{&c.Prefill, &c.Decode} {
			if *key == e.ID {
				*key = e.Name
			}
		}
	}
	return c
}
