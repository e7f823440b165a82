package warm

import (
	"context"
	"encoding/json"
	"time"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// PromptLeg is a request of which only the prompt is of interest. Its body asks for one
// token.
type PromptLeg struct {
	Path string
	Body []byte
	// Tenant is whose it is; empty where no client sent it.
	Tenant string
}

// ComputedPrompt is what an engine says of a prompt that it has computed.
type ComputedPrompt struct {
	Engine string `json:"engine"`
	// Agent is the engine's home, where the directory tells.
	Agent        string `json:"agent,omitempty"`
	PromptTokens int    `json:"prompt_tokens"`
	// CachedTokens are those that it did not compute, FoundTokens those of them that the
	// cell had kept; 0 also where the engine does not tell.
	CachedTokens int     `json:"cached_tokens"`
	FoundTokens  int     `json:"found_tokens"`
	Ms           float64 `json:"ms"`
}

// ComputePrompt has an engine compute a prompt, and throws its token away. To vLLM it is
// of the lowest priority; a server whose scheduler does not go by priorities refuses that
// and says so, gets it without, and is not asked again. ctx ends before Timeout is
// over: an engine that has no time for what is of the lowest priority has not failed.
func (w *Warmer) ComputePrompt(ctx context.Context, e *roster.Engine, l PromptLeg) (ComputedPrompt, *lifecycle.Trouble) {
	l.Body = w.withLeg(e, l)
	view, isObject := openai.ViewBody(l.Body)
	if !isObject || e.About.Load().Kind != openai.KindVLLM || e.Unprioritized.Load() {
		return w.sendPrompt(ctx, e, l)
	}
	low := PromptLeg{Path: l.Path, Body: view.With(openai.Edit{Name: "priority", Value: []byte(lowestPriority)})}
	computed, trouble := w.sendPrompt(ctx, e, low)
	if trouble == nil || trouble.Kind != lifecycle.Refused || !trouble.Priority {
		return computed, trouble
	}
	plain := PromptLeg{Path: l.Path, Body: view.With(openai.Edit{Name: "priority"})}
	if computed, trouble = w.sendPrompt(ctx, e, plain); trouble == nil {
		e.Unprioritized.Store(true)
	}
	return computed, trouble
}

// withLeg is a body with the gateway's word for it: what of it is kept takes its tenant's share.
func (w *Warmer) withLeg(e *roster.Engine, l PromptLeg) []byte {
	legs := upstream.Legs{Request: &request.Request{Tenant: l.Tenant}, Key: w.options.LegKey, ID: upstream.NewTransfer()}
	body, isObject := openai.ViewBody(l.Body)
	if !isObject {
		return l.Body
	}
	return legs.WithLeg(&body, e.About.Load())
}

func (w *Warmer) sendPrompt(ctx context.Context, e *roster.Engine, l PromptLeg) (ComputedPrompt, *lifecycle.Trouble) {
	began := time.Now()
	c, trouble := w.options.Upstream.Send(ctx, upstream.Leg{Engine: e, Path: l.Path, Body: l.Body, Client: &openai.Body{}, ID: upstream.NewTransfer().String(), Silent: w.options.Timeout + time.Second})
	if trouble != nil {
		return ComputedPrompt{}, trouble
	}
	defer c.Close()
	data, trouble := c.ReadAll(upstream.MaxPrefillBytes)
	if trouble != nil {
		return ComputedPrompt{}, trouble
	}
	var chunk openai.Chunk
	if !json.Valid(data) || !chunk.Parse(data) {
		return ComputedPrompt{}, upstream.NotJSON(e)
	}
	var usage openai.Usage
	if chunk.Usage != nil {
		usage.Take(chunk.Usage)
	}
	p := ComputedPrompt{Engine: e.Name(), PromptTokens: usage.PromptTokens, Ms: float64(time.Since(began)) / float64(time.Millisecond)}
	if home := e.Home.Load(); home != nil {
		p.Agent = home.Name
	}
	if d := usage.PromptDetails; d != nil {
		p.CachedTokens = min(max(d.CachedTokens, 0), p.PromptTokens)
	}
	if report := openai.ParseReport(chunk.Report); report != nil && report.KV == openai.KVFound {
		p.FoundTokens = min(max(report.KVTokens, 0), p.PromptTokens)
	}
	return p, nil
}
