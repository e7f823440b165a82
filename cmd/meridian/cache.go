package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"meridian/keep/prefix/survey"
	"meridian/run/node"
)

// cacheCommands are those of the prefixes that a cell keeps.
type cacheCommands struct {
	Top  cacheTopCommand  `cmd:"" help:"Show what is kept and found: by tier, model and tenant."`
	Find cacheFindCommand `cmd:"" help:"Tell what the cell keeps of a prompt, where, and why it is not more."`
	Pin  cachePinCommand  `cmd:"" help:"Keep what is kept of a prompt from being evicted."`
	Drop cacheDropCommand `cmd:"" help:"Take what is kept of a prompt away."`
	Warm cacheWarmCommand `cmd:"" help:"Have engines compute prompts ahead, so that the cell keeps them."`
}

func (c *cacheCommands) Help() string {
	return "Prefixes of prompts that a cell keeps, so that they are computed once. docs/cache.md tells what it promises.\n\n" +
		"  meridian cache find 'Once upon a time there was a harbour'\n" +
		"  meridian cache find --engine server-8100 --file prompt.txt --salt blue\n" +
		"  meridian cache pin --chat --file system.json\n" +
		"  meridian cache top --once --by tenant\n"
}

// promptFlags say which prompt is meant, and of which engine.
type promptFlags struct {
	Prompt  string   `arg:"" optional:"" help:"The prompt."`
	File    string   `placeholder:"FILE" help:"Read the prompt from a file, - for standard input."`
	Tokens  []uint32 `placeholder:"ID" help:"The prompt as token ids, as in 1,2,3."`
	Chat    bool     `help:"The prompt is what a user says, or a JSON list of messages, or a request with them: the engine's chat template is applied."`
	Engine  string   `placeholder:"ID" help:"The engine whose tokens and whose cache are meant (default: any that keeps and finds)."`
	Model   string   `placeholder:"NAME" help:"Any engine of this model."`
	Salt    string   `help:"The tenant's salt, as requests have it in cache_salt."`
	Adapter string   `placeholder:"NAME" help:"The adapter, as the engine names it."`
}

// maxPromptBytes bounds what is read of a prompt, and of an engine's answer about it.
const maxPromptBytes = 64 << 20

// text is the prompt, "" where tokens are given.
func (c *promptFlags) text(std *stdio) (string, error) {
	given := 0
	for _, is := range []bool{c.Prompt != "", c.File != "", len(c.Tokens) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return "", invalid("as in `meridian cache find 'Once upon a time'`", "say which prompt is meant: as an argument, with --file or with --tokens, one of them")
	case c.Chat && len(c.Tokens) > 0:
		return "", invalid("", "--chat takes a text, not --tokens")
	case c.File == "":
		return c.Prompt, nil
	}
	in := std.in
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return "", err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPromptBytes+1))
	if len(data) > maxPromptBytes {
		err = fmt.Errorf("a prompt of more than %d bytes", maxPromptBytes)
	}
	return string(data), err
}

// messagesIn are those of a chat in a text: as they are in JSON, or what a user says.
func messagesIn(text string) (json.RawMessage, error) {
	trimmed := strings.TrimSpace(text)
	if !strings.HasPrefix(trimmed, "[") && !strings.HasPrefix(trimmed, "{") {
		return json.Marshal([]map[string]string{{"role": "user", "content": text}})
	}
	request := struct {
		Messages json.RawMessage `json:"messages"`
	}{json.RawMessage(trimmed)}
	if trimmed[0] == '{' {
		request.Messages = nil
		if err := json.Unmarshal([]byte(trimmed), &request); err != nil {
			return nil, invalid("", "this begins as a request and is none: %w", err)
		}
	}
	var list []json.RawMessage
	if err := json.Unmarshal(request.Messages, &list); err != nil || len(list) == 0 {
		return nil, invalid("", "this begins as JSON and has no list of messages")
	}
	return request.Messages, nil
}

// tokenize has an engine say which tokens a prompt has there.
func (c *promptFlags) tokenize(ctx context.Context, k *survey.Engine, text string) ([]uint32, error) {
	if len(c.Tokens) > 0 {
		return c.Tokens, nil
	}
	if k.URL == "" {
		return nil, &failure{err: fmt.Errorf("engine %s is not reached by HTTP, so it cannot be asked for tokens", oneLine(k.ID)), hint: "give --tokens", status: exitFailure}
	}
	body := map[string]any{"prompt": text}
	if c.Chat {
		messages, err := messagesIn(text)
		if err != nil {
			return nil, err
		}
		body = map[string]any{"messages": messages, "add_generation_prompt": true}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	tokens, err := postTokenize(ctx, strings.TrimSuffix(k.URL, "/")+"/tokenize", data)
	if err != nil {
		return nil, &failure{
			err:  fmt.Errorf("asking engine %s for the tokens of the prompt: %w", oneLine(k.ID), err),
			hint: "--engine names another, --tokens does without one; an engine at loopback is asked on its own host", status: exitFailure,
		}
	}
	return tokens, nil
}

// tokenizeTimeout is how long an engine may take to tokenize a prompt.
const tokenizeTimeout = 20 * time.Second

func postTokenize(ctx context.Context, url string, body []byte) ([]uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenizeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	// An answer that leads elsewhere is not followed: the prompt is for who was asked.
	client := &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxPromptBytes))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s: %s", oneLine(response.Status), oneLine(fmt.Sprintf("%.300s", data)))
	}
	var told struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(data, &told); err != nil {
		return nil, fmt.Errorf("it answered with what are no tokens: %w", err)
	}
	return told.Tokens, nil
}

// look finds out what the cell keeps of the prompt.
func (c *promptFlags) look(ctx context.Context, std *stdio, n *node.Agent, text string) (*survey.Look, error) {
	wait := newWaiting(std.err, "asking the cell")
	defer wait.stop()
	k, err := n.Survey.Engine(ctx, n.Questions, c.Engine, c.Model)
	if errors.Is(err, survey.ErrNoKeeper) {
		return nil, &failure{err: err, hint: "`meridian targets` lists engines; one keeps and finds when its agent has a part in the object cache (store.enabled) and it knows the words", status: exitFailure}
	}
	if err != nil {
		return nil, err
	}
	if k.Salted && c.Salt == "" {
		return nil, invalid("say it with --salt", "engine %s has a salt of its own where a request has none", oneLine(k.ID))
	}
	tokens, err := c.tokenize(ctx, k, text)
	if err != nil {
		return nil, err
	}
	look, err := n.Survey.LookFor(ctx, survey.Prompt{Keeper: k, Salt: c.Salt, Adapter: c.Adapter, Tokens: tokens})
	if errors.Is(err, survey.ErrOtherKey) {
		return nil, &failure{err: err, hint: "names of what is kept are made with cell.key: use the --state of an agent of the cell", status: exitFailure}
	}
	return look, err
}
