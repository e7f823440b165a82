package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"meridian/place"
)

// Engines that take no more. Before an answer begins, a request goes to another decode engine;
// where all are full, a prefill engine generates until one has room, as the request can leave
// it then. An answer that has begun goes back to where it was, or waits.
//
//	            429                  all full                room
//	decode ─────────► another decode ────────► prefill engine ─────► moves to decode

const (
	// roomPoll is how often those that wait look whether an engine has room.
	roomPoll = 50 * time.Millisecond
	// rearrangeEvery is how often the gateway looks who should run elsewhere, and
	// askRoomTimeout how long engines may take to tell how much room they have.
	rearrangeEvery = 100 * time.Millisecond
	askRoomTimeout = time.Second
)

// tookNoMore tells of an engine among candidates whether it took no more lately.
func tookNoMore(candidates []place.Engine, key string) bool {
	return slices.ContainsFunc(candidates, func(e place.Engine) bool { return e.ID == key && e.Full })
}

// maySpare tells whether a prefill engine may generate for this request where decode engines
// are full: one that could not leave it again would keep it from prompts to its end.
func (x *exchange) maySpare() bool {
	mode, _ := x.mode(&about{kind: kindMeridian})
	return mode == resumeExact && x.flow.mayMove()
}

// mayReturn tells whether a request may go on at the engine that it has just left.
func (x *exchange) mayReturn() bool {
	e := x.g.roster.get(x.passage.from)
	return e != nil && e.up.Load() && !x.flow.avoids(e.key) && !x.g.roster.isFull(e)
}

// awaitRoom waits a moment for an engine to have room or to come. It is false when the stream
// has waited as long as a request may.
func (x *exchange) awaitRoom(news <-chan struct{}) bool {
	now := time.Now()
	if x.roomUntil.IsZero() {
		x.roomUntil = now.Add(x.g.options.QueueTimeout)
	}
	if !now.Before(x.roomUntil) {
		return false
	}
	patience := time.NewTimer(min(roomPoll, x.roomUntil.Sub(now)))
	defer patience.Stop()
	select {
	case <-news:
	case <-patience.C:
	case <-x.ctx.Done():
		return false
	}
	return true
}

// refused: an engine took no more, and says for how long.
func (r *roster) refused(e *engine, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.full.Refused(int(max(e.running.Load(), 0)), int64(wait), time.Now().UnixNano())
}

func (r *roster) isFull(e *engine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.full.Is(int(max(e.running.Load()+e.arriving.Load(), 0)), time.Now().UnixNano())
}

// maxRoom is more than any engine has room for.
const maxRoom = 1 << 20

// askRoom has engines tell how many requests they would begin at once, and waits for that.
func (g *Gateway) askRoom(engines []*engine) {
	ctx, cancel := context.WithTimeout(g.life, askRoomTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, e := range engines {
		asking.Go(func() {
			var stats struct {
				Room int64 `json:"room"`
			}
			data, err := g.prober.get(ctx, e, "/stats")
			if err == nil {
				err = json.Unmarshal(data, &stats)
			}
			if err != nil { // then none leaves for it
				stats.Room = 0
			}
			e.room.Store(min(max(stats.Room, 0), maxRoom))
		})
	}
	asking.Wait()
}

// receivers are the engines that requests could move to.
func (r *roster) receivers() []*engine {
	return slices.DeleteFunc(r.all(), func(e *engine) bool {
		return e.role&place.Decode == 0 || !e.up.Load() || e.about.Load().kind != kindMeridian
	})
}

// rearrange has requests that prefill engines generate for leave as soon as a decode engine
// has room, until the gateway ends.
func (g *Gateway) rearrange() {
	tick := time.NewTicker(rearrangeEvery)
	defer tick.Stop()
	for {
		select {
		case <-g.life.Done():
			return
		case <-tick.C:
			lent := g.departures.lent()
			if len(lent) == 0 {
				continue
			}
			g.askRoom(g.roster.receivers())
			for _, d := range lent {
				g.move(d, byRoom)
			}
		}
	}
}

// lent are the legs at engines that do not decode, the oldest first.
func (d *departures) lent() []*departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lent []*departure
	for one := range d.all {
		if one.engine.role&place.Decode == 0 {
			lent = append(lent, one)
		}
	}
	slices.SortFunc(lent, func(a, b *departure) int { return a.began.Compare(b.began) })
	return lent
}
