package workload

import "time"

// Request is one request as a workload knows it: when it comes and how much
// of each phase it has, never what it says.
type Request struct {
	// At is the time since the workload began.
	At time.Duration
	// Prompt, Think and Output count the tokens of each phase. Think is 0
	// where the request does not reason, or the trace does not say whether it does.
	Prompt, Think, Output int32
	// Tenant numbers the client that sent it, from 0.
	Tenant int32
	// Prefix names the prompt's blocks of PrefixTokens tokens, in order: equal
	// numbers are equal blocks after equal blocks, across the requests of one
	// workload. The last block may be partial. The caller may keep the slice.
	Prefix       []uint64
	PrefixTokens int32
	// Converged is the think token after which the answer is settled; 0 is
	// unknown. It is always made up: no public trace tells it.
	Converged int32
}

// Source gives a workload's requests in the order of their arrival. It belongs
// to one goroutine.
type Source interface {
	// Next returns the next request, or false at the end or at an error.
	Next() (Request, bool)
	// Err is what ended the source early, nil if nothing did.
	Err() error
	// Close gives back what the source holds. A source that is read to its end
	// has nothing left to give back.
	Close() error
}
