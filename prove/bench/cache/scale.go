package cache

import (
	"fmt"
	"slices"

	"meridian/prove/bench"
	"meridian/prove/replay/workload"
)

// Scaling says how a trace was made small enough for the engines of one machine. Nothing
// is drawn: the same trace and the same bounds give the same requests.
type Scaling struct {
	// Recorded is how many requests the trace has, and OneIn of how many conversations one
	// was taken, with all its requests.
	Recorded int `json:"recorded"`
	OneIn    int `json:"one_in"`
	Requests int `json:"requests"`
	// Divisor is by what lengths were divided: a block of the trace is a unit of the store.
	Divisor int `json:"divisor"`
	// Cut is how many prompts were longer than what the model takes, and end there.
	Cut          int   `json:"cut"`
	PromptTokens int64 `json:"prompt_tokens"`
}

// bounds are what a trace is scaled to.
type bounds struct {
	requests int // at most
	unit     int // tokens that a block of the trace becomes
	prompt   int // the longest, in tokens
	output   int
}

// scaled takes every OneIn-th conversation of a trace and divides its lengths. A
// conversation is told by the second block of its prompts: the first is what all of a
// deployment have in common. The order stays as it is.
func scaled(trace []workload.Request, b bounds) ([]workload.Request, Scaling, error) {
	s := Scaling{Recorded: len(trace), OneIn: 1}
	var block int
	for _, q := range trace {
		if len(q.Prefix) > 0 {
			block = int(q.PrefixTokens)
			break
		}
	}
	if block == 0 {
		return nil, s, fmt.Errorf("%w: the trace does not tell which prompts begin alike; one with blocks does, such as Mooncake's", bench.ErrOptions)
	}
	if block%b.unit != 0 {
		return nil, s, fmt.Errorf("%w: blocks of %d tokens cannot be divided into units of %d", bench.ErrOptions, block, b.unit)
	}
	s.Divisor = block / b.unit
	var all []workload.Request
	for s.OneIn = max(1, len(trace)/b.requests); ; s.OneIn++ {
		all = slices.Collect(func(yield func(workload.Request) bool) {
			for _, q := range trace {
				if len(q.Prefix) > 0 && conversation(q)%uint64(s.OneIn) == 0 && !yield(q) {
					return
				}
			}
		})
		if len(all) <= b.requests {
			break
		}
	}
	if len(all) == 0 {
		return nil, s, fmt.Errorf("%w: one of %d conversations is none; ask for more requests than %d", bench.ErrOptions, s.OneIn, b.requests)
	}
	for i := range all {
		q := &all[i]
		q.Prompt, q.Output = divided(q.Prompt, s.Divisor), min(divided(q.Output, s.Divisor), int32(b.output))
		q.Think, q.Converged, q.PrefixTokens = 0, 0, int32(b.unit)
		if int(q.Prompt) > b.prompt {
			s.Cut++
			q.Prompt = int32(b.prompt)
			q.Prefix = q.Prefix[:min(len(q.Prefix), (b.prompt+b.unit-1)/b.unit)]
		}
		s.PromptTokens += int64(q.Prompt)
	}
	s.Requests = len(all)
	return all, s, nil
}

// divided is never 0: a request has a prompt and an answer.
func divided(tokens int32, by int) int32 { return (tokens + int32(by) - 1) / int32(by) }

// conversation is a number that all requests of a conversation have, spread evenly.
func conversation(q workload.Request) uint64 {
	x := q.Prefix[min(1, len(q.Prefix)-1)] + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *Scaling) String() string {
	return fmt.Sprintf("%d of %d requests: one of %d conversations, each whole; lengths divided by %d, %d prompts cut at what the model takes; %d tokens of prompts",
		s.Requests, s.Recorded, s.OneIn, s.Divisor, s.Cut, s.PromptTokens)
}
