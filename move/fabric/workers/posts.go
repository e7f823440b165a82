package workers

import (
	"meridian/kv"
	"meridian/move/fabric"
)

type postKey struct {
	group any
	id    kv.ID
}

// posts remembers transfers by ID: all that are running, and the last that
// ended, up to a limit.
type posts struct {
	limit int
	byKey map[postKey]*fabric.Transfer
	order []postKey // oldest first
}

func newPosts(limit int) posts {
	return posts{limit: limit, byKey: make(map[postKey]*fabric.Transfer)}
}

// find is nil for an ID that may be posted: a new one, or one of which no byte
// ever left.
func (p *posts) find(k postKey) *fabric.Transfer {
	t := p.byKey[k]
	if t == nil {
		return nil
	}
	if state, _ := t.Status(); state == fabric.NotSubmitted {
		return nil
	}
	return t
}

func (p *posts) add(k postKey, t *fabric.Transfer) {
	if _, again := p.byKey[k]; !again {
		p.order = append(p.order, k)
	}
	p.byKey[k] = t
	for len(p.order) > p.limit {
		oldest := p.order[0]
		p.order = p.order[1:]
		if state, _ := p.byKey[oldest].Status(); !state.Ended() {
			p.order = append(p.order, oldest) // fewer run than the limit, so this ends
			continue
		}
		delete(p.byKey, oldest)
	}
}
