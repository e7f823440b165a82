package placement

// Move says where a request that runs at from goes on better, and why. Where it must leave
// (leaves), any engine is better; else another engine must have less to do, by margin running
// requests and at least one, than from has beside this one: then it never moves back for the
// same reason. Engines that are full take no request. What engines hold of the prompt does not count, as the cache comes with the
// request. ok is false where it stays.
func Move(engines []Engine, from string, r Request, o Options, leaves bool, margin int) (to string, why Reason, ok bool) {
	var stays *Engine
	others := make([]Engine, 0, len(engines))
	for i := range engines {
		switch e := engines[i]; {
		case e.ID == from:
			stays = &engines[i]
		case !e.Doubtful && !e.Full:
			e.Held, e.InFlight, e.Stored = 0, 0, 0
			others = append(others, e)
		}
	}
	best, why := pick(others, Decode, Request{Turn: r.Turn, Phase: r.Phase}, o)
	switch {
	case best == nil || !leaves && stays == nil:
		return "", Reason{}, false
	case !leaves && o.load(best)+max(margin, 1)*o.running() > o.load(stays)-o.running():
		return "", Reason{}, false
	}
	return best.ID, why, true
}

// MoveToRoom says for which decode engine a request leaves that a prefill engine generates for
// because decode engines were full. ok is false while none has room to go on with it at once:
// in a queue it would stand still, and where it is it does not.
func MoveToRoom(engines []Engine, from string, r Request, o Options) (to string, why Reason, ok bool) {
	var room []Engine
	for _, e := range engines {
		if e.Arriving < e.Room {
			room = append(room, e)
		}
	}
	return Move(room, from, r, o, true, 0)
}

// load is what an engine has to do, in tokens, whichever request asks.
func (o Options) load(e *Engine) int { return e.Waiting + e.Running*o.running() }

func (o Options) running() int { return max(o.RunningTokens, 1) }
