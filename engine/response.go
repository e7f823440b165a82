package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"meridian/engine/token"
	"meridian/serve/openai"
)

// response writes the answers to one request as the API has them, in one piece or
// in chunks. Chunks are put together by hand: there is one for every token.
type response struct {
	id, model, fingerprint string
	created                int64
	chat, streamed         bool
	includeUsage, tokenIDs bool
	request                *Request
	tokenizer              *token.Tokenizer

	answers []answer
	open    int    // answers that have not ended, of a stream
	begun   bool   // a chunk was written
	last    []byte // the chunk that ends the last answer, without its end
	prefix  []byte
}

// answer is what is known of one so far.
type answer struct {
	tokens        []uint32
	text, thought strings.Builder
	logprobs      []Logprob
	finish        string
	begun         bool
	offset        int // characters of text that chunks have told of, for logprobs
}

func (e *Engine) newResponse(in *openai.Sampling, chat bool) *response {
	random := make([]byte, 12)
	rand.Read(random)
	p := &response{
		id: "cmpl-" + hex.EncodeToString(random), model: e.options.ServedName, fingerprint: e.fingerprint(), created: time.Now().Unix(),
		chat: chat, streamed: in.Stream, tokenIDs: in.ReturnTokenIDs, tokenizer: e.source.tokenizer,
		includeUsage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
	}
	if chat {
		p.id = "chat" + p.id
	}
	return p
}

// choices makes room for every answer.
func (p *response) choices() []answer {
	if p.answers == nil {
		p.answers = make([]answer, len(p.request.Prompts)*max(p.request.N, 1))
		p.open = len(p.answers)
	}
	return p.answers
}

// collect reads a stream to its end.
func (p *response) collect(ctx context.Context, s *Stream) error {
	for {
		outputs, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, o := range outputs {
			a := &p.choices()[o.Choice]
			a.tokens = append(a.tokens, o.Tokens...)
			a.text.WriteString(o.Text)
			a.thought.WriteString(o.Thought)
			a.logprobs = append(a.logprobs, o.Logprobs...)
			a.finish = o.Finish
		}
	}
}

type wholeCompletion struct {
	openai.Completion
	SystemFingerprint string `json:"system_fingerprint"`
}

type wholeChat struct {
	openai.Chat
	SystemFingerprint string `json:"system_fingerprint"`
}

// transfer is what the engine that goes on is given, nil where nothing was offered.
func (r *Result) transfer() *openai.KVTransfer {
	if r.Ticket == nil {
		return nil
	}
	return &openai.KVTransfer{DoRemotePrefill: true, Ticket: r.Ticket, Tokens: r.TicketTokens}
}

// whole is the answer in one piece.
func (p *response) whole(r Result) any {
	transfer := r.transfer()
	if p.chat {
		c := openai.Chat{
			ID: p.id, Object: openai.ObjectChat, Created: p.created, Model: p.model, Usage: &r.Usage, KVTransfer: transfer, Report: &r.Report,
		}
		if p.tokenIDs {
			c.PromptTokenIDs = p.request.Prompts[0]
		}
		for i := range p.choices() {
			c.Choices = append(c.Choices, p.chatChoice(i))
		}
		return wholeChat{c, p.fingerprint}
	}
	c := openai.Completion{
		ID: p.id, Object: openai.ObjectCompletion, Created: p.created, Model: p.model, Usage: &r.Usage, KVTransfer: transfer, Report: &r.Report,
	}
	for i := range p.choices() {
		a := &p.answers[i]
		choice := openai.CompletionChoice{Index: i, Text: a.text.String(), Logprobs: p.textLogprobs(a, a.logprobs), FinishReason: &a.finish}
		if p.tokenIDs {
			choice.TokenIDs, choice.PromptTokenIDs = &a.tokens, p.request.Prompts[i/max(p.request.N, 1)]
		}
		c.Choices = append(c.Choices, choice)
	}
	return wholeCompletion{c, p.fingerprint}
}

func (p *response) chatChoice(i int) openai.ChatChoice {
	a := &p.answers[i]
	text := a.text.String()
	choice := openai.ChatChoice{
		Index: i, Message: openai.ChatMessage{Role: "assistant", Content: &text}, Logprobs: p.chatLogprobs(a.logprobs), FinishReason: &a.finish,
	}
	if thought := a.thought.String(); thought != "" {
		choice.Message.ReasoningContent = &thought
	}
	if p.tokenIDs {
		choice.TokenIDs = &a.tokens
	}
	return choice
}

func (p *response) tokenText(id uint32) string {
	return strings.ToValidUTF8(string(p.tokenizer.Text(id)), string(utf8.RuneError))
}

func (p *response) textLogprobs(a *answer, list []Logprob) *openai.TextLogprobs {
	if !p.request.Logprobs {
		return nil
	}
	l := &openai.TextLogprobs{Tokens: []string{}, TokenLogprobs: []*float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	for i := range list {
		text := p.tokenText(list[i].Token)
		l.Tokens = append(l.Tokens, text)
		l.TokenLogprobs = append(l.TokenLogprobs, &list[i].Logprob)
		top := make(map[string]float64, len(list[i].Top)+1)
		for _, t := range list[i].Top {
			top[p.tokenText(t.Token)] = t.Logprob
		}
		l.TopLogprobs = append(l.TopLogprobs, top)
		l.TextOffset = append(l.TextOffset, a.offset)
		a.offset += utf8.RuneCountInString(text)
	}
	return l
}

func (p *response) chatLogprobs(list []Logprob) *openai.ChatLogprobs {
	if !p.request.Logprobs {
		return nil
	}
	l := &openai.ChatLogprobs{Content: []openai.TokenLogprob{}}
	for _, t := range list {
		entry := openai.TokenLogprob{Token: p.tokenText(t.Token), Logprob: t.Logprob, Bytes: numbers(p.tokenizer.Text(t.Token)), TopLogprobs: []openai.TopLogprob{}}
		for _, other := range t.Top {
			entry.TopLogprobs = append(entry.TopLogprobs, openai.TopLogprob{
				Token: p.tokenText(other.Token), Logprob: other.Logprob, Bytes: numbers(p.tokenizer.Text(other.Token)),
			})
		}
		l.Content = append(l.Content, entry)
	}
	return l
}

func numbers(b []byte) []int {
	list := make([]int, len(b))
	for i, c := range b {
		list[i] = int(c)
	}
	return list
}
