package moves

import (
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

const (
	// rearrangeEvery is how often the gateway looks who should run elsewhere.
	rearrangeEvery = 100 * time.Millisecond
	// maxBalancing is how many requests of a model are on their way when another is asked to
	// leave for balance.
	maxBalancing = 2
	// Patience is how long a request that was asked to leave counts as on its way.
	Patience = 10 * time.Second
)

// Run has requests that prefill engines generate for leave as soon as a decode engine has
// room, and others where engines are uneven, until Options.Life ends.
func (m *Moves) Run() {
	tick := time.NewTicker(rearrangeEvery)
	defer tick.Stop()
	balances := make(map[string]*placement.Balance) // by model
	for {
		select {
		case <-m.options.Life.Done():
			return
		case <-tick.C:
			m.Lapse(time.Now())
			m.lookForRoom()
			if lent := m.Lent(); len(lent) > 0 {
				receivers := m.options.Roster.Receivers()
				m.options.Roster.AskRoom(m.options.Life, receivers)
				receivers = slices.DeleteFunc(receivers, m.options.Roster.IsFull)
				for _, d := range lent {
					// To look for each of very many would keep the roster from placement.
					if roster.RoomFor(d.Request.Model, receivers) {
						m.Ask(d, lifecycle.ByRoom)
					}
				}
			}
			if m.options.Balance {
				m.balance(balances)
			}
		}
	}
}

// balance has a request of each model leave whose engines are uneven.
func (m *Moves) balance(balances map[string]*placement.Balance) {
	models := m.ByModel()
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
		if !b.Uneven(m.balanced(legs[0], now), m.options.Place, roster.Instant(now)) {
			continue
		}
		if !asked {
			asked = true
			m.options.Roster.AskRoom(m.options.Life, m.options.Roster.Receivers())
		}
		m.moveForBalance(legs)
	}
}

// balanced are the engines among which requests as this one move.
func (m *Moves) balanced(d *Leg, now time.Time) []placement.Engine {
	kind := openai.KindMeridian
	return m.options.Roster.Candidates(request.Wanted{Request: d.Request, Kind: &kind}, now)
}

// moveForBalance has one of the legs of a model leave, unless enough of them are on their way.
func (m *Moves) moveForBalance(legs []*Leg) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	underway := 0
	var stay []*Leg
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
	which, to, why, ok := placement.MoveForBalance(m.balanced(stay[0], now), running, m.options.Place, roster.Instant(now))
	target := m.options.Roster.Get(to)
	if !ok || target == nil {
		return
	}
	m.order(stay[which], lifecycle.ByBalance, target, why)
}

// running is a leg as placement sees it.
func (d *Leg) running() placement.Running {
	r := placement.Running{ID: d.ID, Engine: d.Engine.Key, Prompt: d.Request.Tokens, Answer: int(d.Answered.Load()), Since: roster.Instant(d.Began), Moves: d.Chosen, Avoids: d.Avoid}
	if limit := d.Request.MaxTokens; limit != nil {
		r.Limit = *limit
	}
	return r
}

// ByModel are the legs of each model, the oldest first.
func (m *Moves) ByModel() map[string][]*Leg {
	m.mu.Lock()
	defer m.mu.Unlock()
	models := make(map[string][]*Leg)
	for one := range m.all {
		if one.Kind != openai.KindMeridian {
			continue // what it would cost is not known well enough
		}
		models[one.Request.Model] = append(models[one.Request.Model], one)
	}
	for _, legs := range models {
		oldestFirst(legs)
	}
	return models
}

// Lent are the legs at engines that do not decode, the oldest first.
func (m *Moves) Lent() []*Leg {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lent []*Leg
	for one := range m.all {
		if one.Engine.Role&placement.Decode == 0 {
			lent = append(lent, one)
		}
	}
	oldestFirst(lent)
	return lent
}

func oldestFirst(legs []*Leg) {
	slices.SortFunc(legs, func(a, b *Leg) int { return a.Began.Compare(b.Began) })
}

// lookForRoom asks engines that took no more whether they have room, while streams stand still for
// it: other gateways' requests may have left them, of which this gateway hears nothing else.
func (m *Moves) lookForRoom() {
	if m.standing.Load() == 0 {
		return
	}
	full := slices.DeleteFunc(m.options.Roster.All(), func(e *roster.Engine) bool {
		return !e.Up.Load() || e.About.Load().Kind != openai.KindMeridian || !m.options.Roster.IsFull(e)
	})
	m.options.Roster.AskRoom(m.options.Life, full)
}
