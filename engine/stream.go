package engine

import (
	"context"
	"io"
	"sync"

	"meridian/serve/openai"
)

// Output is what an answer has grown by.
type Output struct {
	Choice int
	// Tokens are new. Their text may be held back, or belong to earlier ones.
	Tokens []uint32
	// Text and Thought are new, the latter only where thoughts are split off.
	Text, Thought string
	Logprobs      []Logprob
	// Finish is why the answer ends here, or empty.
	Finish string
}

// Result is what is known when all answers have ended.
type Result struct {
	Usage  openai.Usage
	Report openai.Report
	// Ticket is for the engine that goes on with the prompt, of a prefill leg and of a request
	// that moved; the latter's is of TicketTokens, prompt and answer.
	Ticket       []byte
	TicketTokens int
}

// maxUnread is how many tokens may wait for a reader. Beyond it the request
// pauses: it keeps its memory and is not computed until its client reads.
const maxUnread = 256

// Stream is the answers to one request as they come. Who reads it calls Next
// until it returns io.EOF, or ends the context of Submit.
type Stream struct {
	mu      sync.Mutex // protects what follows, up to signal
	pending []Output
	unread  int // tokens in pending
	paused  bool
	err     error // io.EOF: everything has been said
	result  Result
	signal  chan struct{} // has room for one

	unpause func()
}

func newStream(unpause func()) *Stream {
	return &Stream{signal: make(chan struct{}, 1), unpause: unpause}
}

// Next waits for more and returns all there is: at most one Output for each
// answer in a row. At the end it returns io.EOF, or why the request failed.
func (s *Stream) Next(ctx context.Context) ([]Output, error) {
	for {
		s.mu.Lock()
		out, err, paused := s.pending, s.err, s.paused
		if len(out) > 0 {
			s.pending, s.unread, s.paused = nil, 0, false
			s.mu.Unlock()
			if paused {
				s.unpause()
			}
			return out, nil
		}
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Result is known once Next has returned io.EOF.
func (s *Stream) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

// push adds what has come. It reports whether the request should pause.
func (s *Stream) push(o Output) (pause bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread += len(o.Tokens)
	if n := len(s.pending); n > 0 && s.pending[n-1].Choice == o.Choice {
		last := &s.pending[n-1]
		last.Tokens = append(last.Tokens, o.Tokens...)
		last.Text += o.Text
		last.Thought += o.Thought
		last.Logprobs = append(last.Logprobs, o.Logprobs...)
		last.Finish = o.Finish
	} else {
		s.pending = append(s.pending, o)
	}
	s.wake()
	pause = s.unread >= maxUnread && !s.paused
	s.paused = s.paused || pause
	return pause
}

// end says that nothing follows.
func (s *Stream) end(r Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = io.EOF
	}
	if s.err == nil {
		s.result, s.err = r, err
	}
	s.wake()
}

func (s *Stream) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}
