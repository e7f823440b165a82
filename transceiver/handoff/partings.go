package handoff

// partings is the teams of sessions that are over, whose ranks are yet to be
// told. Nothing depends on it any more, so it is given up after a while.
type partings []parting

type parting struct {
	team  *team
	until Instant
}

// add has a team pass the end of a session on to its ranks.
func (p *partings) add(now Instant, t *team, how Problem) []Effect {
	if len(t.ties) == 0 {
		return nil
	}
	effects := t.command(now, PassOn, 0, how)
	*p = append(*p, parting{t, now + t.pace.HandLease})
	return effects
}

func (p *partings) hear(now Instant, from Member, r *Report) {
	for _, x := range *p {
		if x.team.hear(now, from, r) {
			p.sweep(now)
			return
		}
	}
}

func (p *partings) lost(m Member) {
	for _, x := range *p {
		x.team.lost(m)
	}
}

func (p *partings) tick(now Instant) []Effect {
	var effects []Effect
	p.sweep(now)
	for _, x := range *p {
		asked, _ := x.team.tick(now)
		effects = append(effects, asked...)
	}
	return effects
}

func (p *partings) sweep(now Instant) {
	left := (*p)[:0]
	for _, x := range *p {
		if now < x.until && !x.team.done() {
			left = append(left, x)
		}
	}
	clear((*p)[len(left):])
	*p = left
}

func (p *partings) wake() Instant {
	next := Never
	for _, x := range *p {
		next = min(next, x.until, x.team.wake())
	}
	return next
}
