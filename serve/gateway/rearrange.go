package gateway

import (
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

const (
	// rearrangeEvery is how often the gateway looks who should run elsewhere.
	rearrangeEvery = 100 * time.Millisecond
	// maxBalancing is how many requests of a model are on their way when another is asked to
	// leave for balance.
	maxBalancing = 2
	// patientWithMoves is how long a request that was asked to leave counts as on its way.
	patientWithMoves = 10 * time.Second
)

// rearrange has requests that prefill engines generate for leave as soon as a decode engine has
// room, and others where engines are uneven, until the gateway ends.
func (g *Gateway) rearrange() {
	tick := time.NewTicker(rearrangeEvery)
	defer tick.Stop()
	balances := make(map[string]*placement.Balance) // by model
	for {
		select {
		case <-g.life.Done():
			return
		case <-tick.C:
			g.departures.lapse()
			g.lookForRoom()
			if lent := g.departures.lent(); len(lent) > 0 {
				receivers := g.roster.Receivers()
				g.roster.AskRoom(g.life, receivers)
				receivers = slices.DeleteFunc(receivers, g.roster.IsFull)
				for _, d := range lent {
					// To look for each of very many would keep the roster from placement.
					if roster.RoomFor(d.request.Model, receivers) {
						g.move(d, lifecycle.ByRoom)
					}
				}
			}
			if g.options.MoveForBalance {
				g.balance(balances)
			}
		}
	}
}

// balance has a request of each model leave whose engines are uneven.
func (g *Gateway) balance(balances map[string]*placement.Balance) {
	models := g.departures.byModel()
	for model := range balances {
		if models[model] == nil {
			delete(balances, model)
		}
	}
	asked := false
	for model, legs := range models {
		b := balances[model]
		if b == nil {
			b = new(placement.Balance)
			balances[model] = b
		}
		now := time.Now()
		if !b.Uneven(g.balanced(legs[0], now), g.options.Place, now.UnixNano()) {
			continue
		}
		if !asked {
			asked = true
			g.roster.AskRoom(g.life, g.roster.Receivers())
		}
		g.moveForBalance(legs)
	}
}

// balanced are the engines among which requests as this one move.
func (g *Gateway) balanced(d *departure, now time.Time) []placement.Engine {
	kind := openai.KindMeridian
	return g.roster.Candidates(roster.Wanted{Request: d.request, Avoid: func(string) bool { return false }, Kind: &kind}, now)
}

// moveForBalance has one of the legs of a model leave, unless enough of them are on their way.
func (g *Gateway) moveForBalance(legs []*departure) {
	g.departures.deciding.Lock()
	defer g.departures.deciding.Unlock()
	underway := 0
	var stay []*departure
	var running []placement.Running
	for _, d := range legs {
		switch {
		case d.ended:
		case !d.order.stands(lifecycle.ByBalance):
			stay = append(stay, d)
			running = append(running, d.running())
		case d.order.settled: // its engine knows nothing of moves, or takes its time
		default:
			underway++
		}
	}
	if underway >= maxBalancing || len(stay) == 0 {
		return
	}
	now := time.Now()
	which, to, why, ok := placement.MoveForBalance(g.balanced(stay[0], now), running, g.options.Place, now.UnixNano())
	target := g.roster.Get(to)
	if !ok || target == nil {
		return
	}
	g.order(stay[which], lifecycle.ByBalance, target, why)
}

// running is a leg as placement sees it.
func (d *departure) running() placement.Running {
	r := placement.Running{ID: d.of, Engine: d.engine.Key, Prompt: d.request.Tokens, Answer: int(d.answered.Load()), Since: d.began.UnixNano(), Moves: d.chosen, Avoids: d.avoid}
	if limit := d.request.MaxTokens; limit != nil {
		r.Limit = *limit
	}
	return r
}

// byModel are the legs of each model, the oldest first.
func (d *departures) byModel() map[string][]*departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	models := make(map[string][]*departure)
	for one := range d.all {
		if one.kind != openai.KindMeridian {
			continue // what it would cost is not known well enough
		}
		models[one.request.Model] = append(models[one.request.Model], one)
	}
	for _, legs := range models {
		oldestFirst(legs)
	}
	return models
}

// lent are the legs at engines that do not decode, the oldest first.
func (d *departures) lent() []*departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lent []*departure
	for one := range d.all {
		if one.engine.Role&placement.Decode == 0 {
			lent = append(lent, one)
		}
	}
	oldestFirst(lent)
	return lent
}

func oldestFirst(legs []*departure) {
	slices.SortFunc(legs, func(a, b *departure) int { return a.began.Compare(b.began) })
}
