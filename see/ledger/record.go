package ledger

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Outcomes of a request.
const (
	Finished  = "finished"  // the client got everything
	Refused   = "refused"   // it asked for what cannot be
	Failed    = "failed"    // it could not be served
	Cancelled = "cancelled" // the client went away
)

// Record is what became of one request. It has no text of prompt or answer.
type Record struct {
	ID string `json:"id"`
	// ClientID is what the client called it.
	ClientID string    `json:"client_id,omitempty"`
	Began    time.Time `json:"began"`
	Endpoint string    `json:"endpoint"`
	Model    string    `json:"model,omitempty"`
	Stream   bool      `json:"stream,omitempty"`
	// Trace is the OpenTelemetry trace that it is part of.
	Trace *Trace `json:"trace,omitempty"`
	// Placement is where it went first, and why.
	Placement string `json:"placement,omitempty"`
	// Held is what engines held of the prompt when it was placed.
	Held []Held `json:"held,omitempty"`
	// Stored is what the cell was thought to keep of it, nil where that was nothing.
	Stored *Stored `json:"stored,omitempty"`
	Legs   []Leg   `json:"legs,omitempty"`
	// Resumed counts how often a stream went on with another engine.
	Resumed int `json:"resumed,omitempty"`
	// Moves are how a stream went on with another engine while its own was well.
	Moves   []Move  `json:"moves,omitempty"`
	Latency Latency `json:"latency"`

	// Shape is what a workload keeps of the request.
	Shape

	PromptTokens int `json:"prompt_tokens,omitempty"`
	// OutputTokens are all that were generated, ThinkTokens those of them that
	// were thought.
	OutputTokens int `json:"output_tokens,omitempty"`
	ThinkTokens  int `json:"think_tokens,omitempty"`
	// MaxThinkTokens is how many the client allowed, nil where it did not say; ForcedThinkEnd
	// is why the engine ended a thought, empty where it did not.
	MaxThinkTokens *int   `json:"max_think_tokens,omitempty"`
	ForcedThinkEnd string `json:"forced_think_end,omitempty"`
	Finish         string `json:"finish,omitempty"` // why the answer ended
	Outcome        string `json:"outcome"`
	Status         int    `json:"status"` // of the HTTP response
	Problem        string `json:"problem,omitempty"`
}

// Trace is where a request stands in a trace, in the hexadecimal of W3C's context.
type Trace struct {
	ID string `json:"id"`
	// Span is the request's own, empty where the gateway makes none; Parent is the
	// client's.
	Span    string `json:"span,omitempty"`
	Parent  string `json:"parent,omitempty"`
	Sampled bool   `json:"sampled"`
}

// Shape tells requests of one sender, and prompts that begin alike, from others,
// by numbers that lead back to neither: they are made with a key that only the
// gateway's process ever has, and mean nothing after it.
type Shape struct {
	// Tenant is the client that sent it, 0 where nothing says who.
	Tenant uint64 `json:"tenant,omitempty"`
	// Prefix has a number for each PrefixTokens tokens of the prompt, which
	// stands for them and all before them.
	Prefix       []uint64 `json:"prefix,omitempty"`
	PrefixTokens int      `json:"prefix_tokens,omitempty"`
	// PromptAbout is how long the prompt seemed when it came.
	PromptAbout int `json:"prompt_tokens_about,omitempty"`
}

// Kinds of legs.
const (
	PrefillLeg = "prefill"
	DecodeLeg  = "decode"
	ResumeLeg  = "resume"
	MoveLeg    = "move"
)

// Held is what one engine held of a prompt, as the gateway knew it.
type Held struct {
	Engine string `json:"engine"`
	Tokens int    `json:"tokens"`
	// Told: the engine itself tells what its cache holds.
	Told bool `json:"told,omitempty"`
}

func (h Held) String() string {
	how := "as was sent to it"
	if h.Told {
		how = "by its events"
	}
	return fmt.Sprintf("%d tokens at %s, %s", h.Tokens, h.Engine, how)
}

// Stored is what the cell's object cache was thought to keep of a prompt, and what came
// of it.
type Stored struct {
	// Tokens of Prompt were thought to be kept; of a text, about.
	Tokens int `json:"tokens"`
	Prompt int `json:"prompt"`
	// Spared of Of tokens the engine did not compute; Of is 0 where it did not tell.
	Spared int `json:"spared,omitempty"`
	Of     int `json:"of,omitempty"`
}

func (s *Stored) String() string {
	text := fmt.Sprintf("%d of %d tokens were thought to be kept in the cell", s.Tokens, s.Prompt)
	if s.Of == 0 {
		return text
	}
	return fmt.Sprintf("%s; %d of %d did not have to be computed", text, s.Spared, s.Of)
}

// Move is a request's passage from one engine to another in the middle of its answer.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Why it left, and why for that engine.
	Why       string `json:"why"`
	Placement string `json:"placement,omitempty"`
	Tokens    int    `json:"tokens"` // of the answer, that came before
	// AtMs is when the last of them came, after the request began; GapMs is how long the
	// client waited for the next, 0 where none came of it.
	AtMs  float64 `json:"at_ms"`
	GapMs float64 `json:"gap_ms,omitempty"`
	// KV says where the other engine had the cache from, where it told.
	KV string `json:"kv,omitempty"`
}

func (m *Move) String() string {
	text := fmt.Sprintf("from %s to %s (%s), because of %s, after %d tokens, at %.1f ms", m.From, m.To, cmp.Or(m.Placement, "as planned"), m.Why, m.Tokens, m.AtMs)
	if m.GapMs == 0 {
		return text + ", which came to nothing"
	}
	text += fmt.Sprintf("; %.2f ms to the next token", m.GapMs)
	if m.KV != "" {
		text += ", cache " + m.KV
	}
	return text
}

// Leg is one request to one engine.
type Leg struct {
	Kind   string `json:"kind"`
	Engine string `json:"engine"`
	// Transfer is the hand-off that a prefill leg offered or a decode leg took.
	Transfer string `json:"transfer,omitempty"`
	// Span is the leg's own in the request's trace; empty where that is not sampled.
	Span    string  `json:"span,omitempty"`
	StartMs float64 `json:"start_ms"` // after the request began
	Ms      float64 `json:"ms"`
	Status  int     `json:"status,omitempty"`
	// KV says where the prompt's cache came from, KVReason why not from where
	// it should have.
	KV       string `json:"kv,omitempty"`
	KVReason string `json:"kv_reason,omitempty"`
	// KVTokens is how many tokens of it the cell had, where a prefix was found.
	KVTokens int    `json:"kv_tokens,omitempty"`
	Tokens   int    `json:"tokens,omitempty"` // that came of it
	Problem  string `json:"problem,omitempty"`
}

// Latency is the time of a request by phase, in milliseconds; what did not
// happen or was not seen is 0.
type Latency struct {
	QueueMs   float64 `json:"queue_ms"`             // in the gateway
	PrefillMs float64 `json:"prefill_ms,omitempty"` // the prefill leg, or as the engine tells
	HandoffMs float64 `json:"handoff_ms,omitempty"` // as the engine tells
	TTFTMs    float64 `json:"ttft_ms,omitempty"`    // first token, of whatever kind
	TTFVTMs   float64 `json:"ttfvt_ms,omitempty"`   // first token that a user sees
	TTOTMs    float64 `json:"ttot_ms,omitempty"`    // from the last thought to the first visible token
	// Means between tokens.
	ThinkITLMs  float64 `json:"think_itl_ms,omitempty"`
	AnswerITLMs float64 `json:"answer_itl_ms,omitempty"`
	TotalMs     float64 `json:"total_ms"`
}

// Transfers are the ids of the hand-offs that the request took part in, each
// once.
func (r *Record) Transfers() []string {
	var ids []string
	seen := make(map[string]bool)
	for _, leg := range r.Legs {
		if leg.Transfer != "" && !seen[leg.Transfer] {
			seen[leg.Transfer] = true
			ids = append(ids, leg.Transfer)
		}
	}
	return ids
}

// String tells it to a person.
func (r *Record) String() string {
	var b strings.Builder
	kind := "at once"
	if r.Stream {
		kind = "streamed"
	}
	fmt.Fprintf(&b, "request %s: %s", r.ID, r.Outcome)
	if r.Problem != "" {
		fmt.Fprintf(&b, ", %s", r.Problem)
	}
	if r.ClientID != "" {
		fmt.Fprintf(&b, "\n  called %s by its client", r.ClientID)
	}
	fmt.Fprintf(&b, "\n  %s of %s, %s, at %s, status %d\n", r.Endpoint, cmp.Or(r.Model, "no model"), kind, r.Began.Format(time.RFC3339Nano), r.Status)
	fmt.Fprintf(&b, "  tokens: prompt %d, answer %d", r.PromptTokens, r.OutputTokens)
	if r.ThinkTokens > 0 {
		fmt.Fprintf(&b, " (%d of them thought)", r.ThinkTokens)
	}
	if r.Finish != "" {
		fmt.Fprintf(&b, ", ended by %s", r.Finish)
	}
	r.tellThought(&b)
	fmt.Fprintf(&b, "\n  placement: %s\n", cmp.Or(r.Placement, "none"))
	for _, h := range r.Held {
		fmt.Fprintf(&b, "  held of the prompt: %s\n", h)
	}
	if r.Stored != nil {
		fmt.Fprintf(&b, "  stored of the prompt: %s\n", r.Stored)
	}
	for _, leg := range r.Legs {
		leg.tell(&b)
	}
	switch {
	case r.Resumed == 1:
		b.WriteString("  resumed: its engine was lost, and it went on with another from where it was\n")
	case r.Resumed > 1:
		fmt.Fprintf(&b, "  resumed %d times: its engine was lost, and it went on with another from where it was\n", r.Resumed)
	}
	for i := range r.Moves {
		fmt.Fprintf(&b, "  moved %s\n", &r.Moves[i])
	}
	r.Latency.tell(&b)
	return b.String()
}

// tellThought tells how long a thought might be, and why it ended, where that is known.
func (r *Record) tellThought(b *strings.Builder) {
	var parts []string
	if r.MaxThinkTokens != nil {
		parts = append(parts, fmt.Sprintf("at most %d tokens", *r.MaxThinkTokens))
	}
	if r.ForcedThinkEnd != "" {
		parts = append(parts, "ended by the engine: "+r.ForcedThinkEnd)
	}
	if len(parts) > 0 {
		fmt.Fprintf(b, "\n  thought: %s", strings.Join(parts, ", "))
	}
}

func (l *Leg) tell(b *strings.Builder) {
	cache := l.KV
	if l.KVTokens > 0 {
		cache = fmt.Sprintf("%s (%d tokens)", l.KV, l.KVTokens)
	}
	fmt.Fprintf(b, "  %-8s at %s, from %.1f ms, took %.1f ms", l.Kind, l.Engine, l.StartMs, l.Ms)
	for _, part := range []struct{ name, text string }{
		{"transfer", l.Transfer}, {"cache", cache}, {"because", l.KVReason}, {"problem:", l.Problem},
	} {
		if part.text != "" {
			fmt.Fprintf(b, ", %s %s", part.name, part.text)
		}
	}
	if l.Tokens > 0 {
		fmt.Fprintf(b, ", %d tokens", l.Tokens)
	}
	b.WriteByte('\n')
}

func (l *Latency) tell(b *strings.Builder) {
	b.WriteString("  latency, ms:")
	for _, part := range []struct {
		name string
		ms   float64
	}{
		{"queue", l.QueueMs},
		{"prefill", l.PrefillMs},
		{"hand-off", l.HandoffMs},
		{"TTFT", l.TTFTMs},
		{"TTFVT", l.TTFVTMs},
		{"TTOT", l.TTOTMs},
		{"think ITL", l.ThinkITLMs},
		{"answer ITL", l.AnswerITLMs},
		{"total", l.TotalMs},
	} {
		if part.ms > 0 {
			fmt.Fprintf(b, " %s %.2f", part.name, part.ms)
		}
	}
	b.WriteByte('\n')
}
