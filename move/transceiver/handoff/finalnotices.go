package handoff

import "meridian/kv"

// finalNotices is the followers of sessions that are over, whose ranks are yet to
// be told. Nothing depends on it any more, so it is given up after a while.
type finalNotices []finalNotice

type finalNotice struct {
	followers *followerGroup
	until     Instant
}

// add has followers tell their ranks how a session ended.
func (p *finalNotices) add(now Instant, t *followerGroup, how Problem) []Effect {
	if len(t.members) == 0 {
		return nil
	}
	effects := t.orderAll(now, OrderNotifyRanks, Computed{}, how)
	*p = append(*p, finalNotice{t, now + t.timing.FollowerLease})
	return effects
}

func (p *finalNotices) onReport(now Instant, from kv.Member, r *Report) {
	for _, x := range *p {
		if x.followers.onReport(now, from, r) {
			p.sweep(now)
			return
		}
	}
}

func (p *finalNotices) onGone(m kv.Member) {
	for _, x := range *p {
		x.followers.onGone(m)
	}
}

func (p *finalNotices) tick(now Instant) []Effect {
	var effects []Effect
	p.sweep(now)
	for _, x := range *p {
		asked, _ := x.followers.tick(now)
		effects = append(effects, asked...)
	}
	return effects
}

func (p *finalNotices) sweep(now Instant) {
	left := (*p)[:0]
	for _, x := range *p {
		if now < x.until && !x.followers.done() {
			left = append(left, x)
		}
	}
	clear((*p)[len(left):])
	*p = left
}

func (p *finalNotices) wake() Instant {
	next := Never
	for _, x := range *p {
		next = min(next, x.until, x.followers.wake())
	}
	return next
}
