package gateway

import (
	"slices"
	"time"

	"meridian/decide/placement"
)

// Engines that take no more. Before an answer begins, a request goes to another decode engine;
// where all are full, a prefill engine generates until one has room, as the request can leave
// it then. An answer that has begun goes back to where it was, or waits.
//
//	            429                  all full                room
//	decode ─────────► another decode ────────► prefill engine ─────► moves to decode

// roomPoll is how often those that wait look whether an engine has room.
const roomPoll = 50 * time.Millisecond

// tookNoMore tells of an engine among candidates whether it took no more lately.
func tookNoMore(candidates []placement.Engine, key string) bool {
	return slices.ContainsFunc(candidates, func(e placement.Engine) bool { return e.ID == key && e.Full })
}

// mayReturn tells whether a request may go on at the engine that it has just left.
func (x *exchange) mayReturn() bool {
	e := x.g.roster.Get(x.life.Passage.From)
	return e != nil && e.Up.Load() && !x.life.Route.Avoids(e.Key) && !x.g.roster.IsFull(e)
}

// awaitRoom waits a moment for an engine to have room or to come. It is false when the stream
// has waited as long as a request may.
func (x *exchange) awaitRoom(news <-chan struct{}) bool {
	left := x.life.AwaitRoom(time.Now(), x.g.options.QueueTimeout)
	if left == 0 {
		return false
	}
	defer x.g.moves.Stand()()
	patience := time.NewTimer(min(roomPoll, left))
	defer patience.Stop()
	select {
	case <-news:
	case <-patience.C:
	case <-x.ctx.Done():
		return false
	}
	return true
}
