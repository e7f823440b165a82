package roster

import (
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/serve/openai"
)

// RoomFor: one of the engines would begin another request of a model at once.
func RoomFor(model string, engines []*Engine) bool {
	return slices.ContainsFunc(engines, func(e *Engine) bool { return e.hasRoom() && e.About.Load().Serves(model) })
}

// hasRoom: it would begin one more at once, beside those that are on their way to it.
func (e *Engine) hasRoom() bool { return max(e.Arriving.Load(), 0) < e.room.Load() }

// Receivers are the engines that requests could move to.
func (r *Roster) Receivers() []*Engine {
	return slices.DeleteFunc(r.All(), func(e *Engine) bool {
		return e.Role&placement.Decode == 0 || !e.Up.Load() || e.About.Load().Kind != openai.KindMeridian
	})
}

// hasRoom takes in what a full engine has told of its room.
func (r *Roster) hasRoom(e *Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.full.HasRoom(int(max(e.Running.Load(), 0)), int(e.room.Load()), Instant(time.Now()))
}

// Refused: an engine took no more, and says for how long.
func (r *Roster) Refused(e *Engine, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.full.Refused(int(max(e.Running.Load(), 0)), int64(wait), Instant(time.Now()))
}

// IsFull: the engine took no more lately, and has as much to do as then.
func (r *Roster) IsFull(e *Engine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.isFull(time.Now())
}

// isFull: the engine took no more lately, and has as much to do as then. Requests that were
// asked to leave it are there until they have left: without them it would be asked for room
// over and over. The caller holds the roster's lock.
func (e *Engine) isFull(now time.Time) bool {
	return e.full.Is(int(max(e.Running.Load()+max(e.Arriving.Load(), 0), 0)), Instant(now))
}
