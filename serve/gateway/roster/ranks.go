package roster

import (
	"strconv"
	"strings"

	"meridian/serve/openai"
)

// HeaderRank tells a vLLM server which of its data-parallel ranks a request is for;
// without it the server chooses.
const HeaderRank = "X-Data-Parallel-Rank"

// maxRank bounds what is taken for the number of a rank.
const maxRank = 1 << 16

// rankName takes apart the name that vLLM gives to a data-parallel rank, ID_dp0,
// ID_dp1, …; every rank is an engine of its own.
func rankName(id string) (of string, rank int, ok bool) {
	at := strings.LastIndex(id, "_dp")
	if at < 0 {
		return "", 0, false
	}
	rank, err := strconv.Atoi(id[at+len("_dp"):])
	if err != nil || rank < 0 || rank > maxRank {
		return "", 0, false
	}
	return id[:at], rank, true
}

// DataRank is which of the ranks behind its address an engine is, counted from the
// first of them as vLLM does; false where it is alone there. A leg is sealed for one
// engine, so another rank than that one would refuse it, and compute the prompt.
func (r *Roster) DataRank(e *Engine) (int, bool) {
	about := e.About.Load()
	of, rank, ok := rankName(about.ID)
	if !ok || about.Kind != openai.KindVLLM {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first, count := rank, 0
	for _, other := range r.engines {
		if other.URL != e.URL {
			continue
		}
		if its, n, ok := rankName(other.About.Load().ID); ok && its == of {
			first, count = min(first, n), count+1
		}
	}
	return rank - first, count > 1
}
