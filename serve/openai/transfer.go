package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// KVTransfer is kv_transfer_params: how a gateway tells a prefill engine to
// keep what it computes and a decode engine where to take it from. What an
// engine puts in is passed on as it is, so members that are not named here
// survive.
type KVTransfer struct {
	DoRemoteDecode  bool
	DoRemotePrefill bool
	// Ticket is what a Meridian prefill engine offers, Leg the gateway's word
	// that it made this leg.
	Ticket []byte
	Leg    []byte
	// Transfer is the id, in hex, under which a prefill engine must offer what
	// it computes: the one that Leg is for.
	Transfer string
	// Promised: a decode engine has been promised what a prefill leg offers, and
	// waits for it.
	Promised bool
	// Unused: no engine will take what Ticket is for. An engine that gets it gives the
	// ticket back, and treats the request as any other.
	Unused bool
	// ThoughtEnd is the tokens that end a thought: of an answer that has them, an engine lets
	// its prompt be kept alone, as what follows it does not come again.
	ThoughtEnd []uint32
	// Tokens is how many tokens Ticket is of, where that is not the prompt: the prompt and the
	// answer so far of a request that moves.
	Tokens int
	// Move lets the engine end this leg early, for another to go on; nil: it may not.
	Move *Move
	// Others are the members that have no name here.
	Others map[string]json.RawMessage
}

type namedTransfer struct {
	DoRemoteDecode  bool     `json:"do_remote_decode"`
	DoRemotePrefill bool     `json:"do_remote_prefill"`
	Ticket          []byte   `json:"meridian_ticket,omitempty"`
	Leg             []byte   `json:"meridian_leg,omitempty"`
	Transfer        string   `json:"meridian_transfer,omitempty"`
	Promised        bool     `json:"meridian_promised,omitempty"`
	Unused          bool     `json:"meridian_unused,omitempty"`
	ThoughtEnd      []uint32 `json:"meridian_thought_end,omitempty"`
	Tokens          int      `json:"meridian_tokens,omitempty"`
	Move            *Move    `json:"meridian_move,omitempty"`
}

// PathMove is where a Meridian engine is asked to end a leg for another to go on. The body is
// a Move with the transfer of that leg's.
const PathMove = "/move"

// Move is how a leg may leave its engine: where the prompt and the answer so far are offered
// under Transfer, an id in hex, and Leg is the gateway's word for that. It leaves when the
// engine is asked to, by that id, or of itself, right after a token or with so many of the answer.
type Move struct {
	Transfer    string  `json:"transfer"`
	Leg         []byte  `json:"leg,omitempty"`
	TokenID     *uint32 `json:"token_id,omitempty"`
	AfterTokens int     `json:"after_tokens,omitempty"`
}

// UnmarshalJSON keeps what it does not know.
func (k *KVTransfer) UnmarshalJSON(data []byte) error {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil
	}
	var named namedTransfer
	if err := json.Unmarshal(data, &named); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, name := range []string{"do_remote_decode", "do_remote_prefill", "meridian_ticket", "meridian_leg", "meridian_transfer", "meridian_promised", "meridian_unused", "meridian_thought_end", "meridian_tokens", "meridian_move"} {
		delete(all, name)
	}
	if len(all) == 0 {
		all = nil
	}
	*k = KVTransfer{named.DoRemoteDecode, named.DoRemotePrefill, named.Ticket, named.Leg, named.Transfer, named.Promised, named.Unused, named.ThoughtEnd, named.Tokens, named.Move, all}
	return nil
}

// MarshalJSON writes named members and others.
func (k KVTransfer) MarshalJSON() ([]byte, error) {
	named, err := json.Marshal(namedTransfer{k.DoRemoteDecode, k.DoRemotePrefill, k.Ticket, k.Leg, k.Transfer, k.Promised, k.Unused, k.ThoughtEnd, k.Tokens, k.Move})
	if err != nil || len(k.Others) == 0 {
		return named, err
	}
	others, err := json.Marshal(k.Others)
	if err != nil {
		return nil, err
	}
	return append(append(named[:len(named)-1], ','), others[1:]...), nil
}

// RemoteDecode is what a prefill leg's request carries: vLLM wants the remote
// members to be there.
func RemoteDecode(transfer string, leg []byte) *KVTransfer {
	null := json.RawMessage("null")
	return &KVTransfer{DoRemoteDecode: true, Transfer: transfer, Leg: leg, Others: map[string]json.RawMessage{
		"remote_engine_id": null, "remote_block_ids": null, "remote_host": null, "remote_port": null,
	}}
}

// KV says where a decode engine had a prompt's cache from.
const (
	KVHandoff = "handoff" // another engine computed it
	KVCached  = "cached"  // it was there
	KVLocal   = "local"   // it computed it itself
	KVFound   = "found"   // the cell had kept a prefix of it
)

// Report is what a Meridian engine tells its gateway beside the answer, in the
// member "meridian".
type Report struct {
	Engine    string  `json:"engine"`
	QueueMs   float64 `json:"queue_ms"`
	PrefillMs float64 `json:"prefill_ms"`
	HandoffMs float64 `json:"handoff_ms"`
	KV        string  `json:"kv,omitempty"`
	// KVReason says why, where the cache was to come from elsewhere and did not.
	KVReason string `json:"kv_reason,omitempty"`
	// KVTokens is how many tokens the cell had, where a prefix was found.
	KVTokens int `json:"kv_tokens,omitempty"`
	// CachedTokens of the PromptTokens were not computed, wherever they came from.
	PromptTokens int `json:"prompt_tokens,omitempty"`
	CachedTokens int `json:"cached_tokens,omitempty"`
	// ForcedThinkEnd is why a thought was ended that its model had not, one of the Forced;
	// of several answers the first one's. Empty: none was.
	ForcedThinkEnd string `json:"forced_think_end,omitempty"`
}

// Why an engine ends a thought.
const (
	ForcedHardCap      = "hard_cap"     // it had as many tokens as it may have
	ForcedConverged    = "converged"    // it had come to its answer
	ForcedOverthinking = "overthinking" // it strayed
)

// IsForcedEnd tells whether it is one of them.
func IsForcedEnd(reason string) bool {
	return reason == ForcedHardCap || reason == ForcedConverged || reason == ForcedOverthinking
}

// forcedPrefix is how a stop_reason begins that says why a thought was ended: the reason follows,
// a colon, and what vLLM has to say itself, as JSON.
const forcedPrefix = "meridian_forced_end:"

// forcedEnd is why vLLM's engine ended a thought, as its stop_reason tells, and what it would be
// without that; "" where it tells nothing of it.
func forcedEnd(stopReason json.RawMessage) (forced string, rest json.RawMessage) {
	var text string
	if !bytes.HasPrefix(stopReason, []byte(`"`+forcedPrefix)) || json.Unmarshal(stopReason, &text) != nil {
		return "", nil
	}
	forced, own, _ := strings.Cut(text[len(forcedPrefix):], ":")
	if !IsForcedEnd(forced) {
		return "", nil
	}
	if !isStopReason(own) {
		own = "null"
	}
	return forced, json.RawMessage(own)
}

// maxStopReason is how many bytes of JSON a stop_reason has that is put back into a client's answer.
const maxStopReason = 4096

// isStopReason tells whether a text is a stop_reason as vLLM writes them, in JSON: null, a token's
// number, or the text that an answer stopped at.
func isStopReason(text string) bool {
	if text == "null" {
		return true
	}
	if len(text) > maxStopReason || !json.Valid([]byte(text)) {
		return false
	}
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil || text[0] == '"'
}

// ParseReport reads what an engine tells, nil where it tells nothing that can be read.
func ParseReport(raw json.RawMessage) *Report {
	var r Report
	if raw == nil || json.Unmarshal(raw, &r) != nil {
		return nil
	}
	return &r
}

// Milliseconds is a time that an engine tells, nothing where it is none.
func Milliseconds(v float64) time.Duration {
	if math.IsNaN(v) || v < 0 || v > float64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(v * float64(time.Millisecond))
}
