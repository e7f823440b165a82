package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"meridian/serve/gateway"
	"meridian/serve/openai"
)

type cacheWarmCommand struct {
	Prompt     string        `arg:"" optional:"" help:"The prompt, or with --chat what a user says; - reads standard input."`
	File       string        `placeholder:"FILE" help:"Read it from a file instead."`
	Requests   string        `placeholder:"FILE" help:"Many prompts: a file of requests as clients send them, a JSON object with prompt or messages on each line; - is standard input."`
	Chat       bool          `help:"Write it as a chat, as the first thing that a user says."`
	System     string        `placeholder:"TEXT" help:"What a chat begins with; alone, every chat that begins so is spared it."`
	Model      string        `placeholder:"NAME" help:"Which model (default: the only one there is)."`
	Salt       string        `placeholder:"TEXT" help:"The cache_salt of those whose prompt it is: requests with another one do not find it."`
	Engine     string        `placeholder:"ID" help:"The engine that has it in its own memory then (default: an engine that has time)."`
	Agent      string        `placeholder:"NAME" help:"The agent one of whose engines computes it; what is new is kept on its host."`
	Everywhere bool          `help:"Every engine that serves the model, one after the other: the first computes it, the others find it. What is used twice goes to disk and S3, too, where these are."`
	Concurrent int           `default:"4" placeholder:"N" help:"How many prompts are on their way at a time, at most 16 (default: ${default})."`
	Timeout    time.Duration `default:"2m" placeholder:"TIME" help:"Longest that one may take (default: ${default})."`
	Admin      string        `placeholder:"URL" help:"The gateway's admin listener (default: that of the cell which up runs)."`
	State      string        `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory of the cell (default: agent.state_dir of the configuration)."`
	JSON       bool          `help:"Print one JSON object."`

	operator *http.Client
}

func (c *cacheWarmCommand) Help() string {
	return "An engine computes the prompt, throws away what it generates, and the cell keeps what it computed. TOKENS is how long the prompt is, CACHED how much of it the engine " +
		"did not compute, FOUND how much of that the cell had kept; 0 also where an engine does not tell.\n\n" +
		"  meridian cache warm --file handbook.txt\n" +
		"  meridian cache warm --system \"$(cat rules.txt)\" --everywhere\n" +
		"  meridian cache warm --requests prompts.jsonl --concurrent 8 --json\n"
}

// maxWarmBytes is how long one prompt may be; the gateway has a bound of its own.
const maxWarmBytes = 64 << 20

// warmRow is what became of one prompt at one engine.
type warmRow struct {
	// Prompt counts from 1, as lines do.
	Prompt int `json:"prompt"`
	gateway.ComputedPrompt
	Problem string `json:"problem,omitempty"`
}

func (c *cacheWarmCommand) Run(std *stdio, all *commands) error {
	if c.Concurrent < 1 || c.Concurrent > gateway.MaxWarmCalls {
		return invalid("", "--concurrent %d: 1 to %d", c.Concurrent, gateway.MaxWarmCalls)
	}
	admin, err := adminOf(c.Admin, c.State, std, all)
	if err != nil {
		return err
	}
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	if c.operator, err = adminClient(loaded.Config); err != nil {
		return err
	}
	ctx, cancel := untilStopped()
	defer cancel()
	engines, err := c.engines(ctx, admin)
	if err != nil {
		return err
	}
	if c.Requests == "" {
		body, err := c.single(std)
		if err != nil {
			return err
		}
		rows := c.warm(ctx, admin, warmJob{1, body}, engines)
		return c.print(std, rows)
	}
	rows, err := c.many(ctx, std, admin, engines)
	if err != nil && rows == nil {
		return err
	}
	return errors.Join(err, c.print(std, rows))
}

// engines are who is asked, by name; an empty name leaves it to the gateway.
func (c *cacheWarmCommand) engines(ctx context.Context, admin string) ([]string, error) {
	if !c.Everywhere {
		return []string{c.Engine}, nil
	}
	if c.Engine != "" {
		return nil, invalid("leave out one of them", "--engine and --everywhere contradict each other")
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(admin, "/")+"/debug/engines", nil)
	if err != nil {
		return nil, invalid("it looks like http://127.0.0.1:9465", "--admin: %v", err)
	}
	var shown struct{ Engines []gateway.EngineState }
	if err := c.askAdmin(request, &shown); err != nil {
		return nil, err
	}
	var names []string
	for _, e := range shown.Engines {
		serves := c.Model == ""
		for _, model := range e.Models {
			serves = serves || model == c.Model
		}
		if e.Up && serves && (c.Agent == "" || e.Agent == c.Agent) {
			names = append(names, e.ID)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no engine that answers serves it")
	}
	return names, nil
}

// single is the request of the one prompt that flags and arguments name.
func (c *cacheWarmCommand) single(std *stdio) ([]byte, error) {
	text := c.Prompt
	if (c.Prompt != "") == (c.File != "") && (c.Prompt != "" || c.System == "") {
		return nil, invalid("give a prompt, --file, --system or --requests", "it must be said once what is to be computed")
	}
	if c.File != "" || c.Prompt == "-" {
		from := std.in
		if c.File != "" && c.File != "-" {
			f, err := os.Open(c.File)
			if err != nil {
				return nil, unopened(err)
			}
			defer f.Close()
			from = f
		}
		data, err := io.ReadAll(io.LimitReader(from, maxWarmBytes+1))
		if err != nil {
			return nil, err
		}
		if len(data) > maxWarmBytes {
			return nil, invalid("", "the prompt has more than %d bytes", maxWarmBytes)
		}
		text = string(data)
	}
	request := map[string]any{}
	if c.Chat || c.System != "" {
		type message struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		}
		var messages []message
		if c.System != "" {
			messages = append(messages, message{"system", c.System})
		}
		messages = append(messages, message{"user", text})
		request["messages"] = messages
		if text == "" { // some user is to speak
			request["add_generation_prompt"] = false
		}
	} else {
		request["prompt"] = text
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	return c.complete(body)
}

// complete puts model and salt into a request that says nothing of them.
func (c *cacheWarmCommand) complete(line []byte) ([]byte, error) {
	body, fault := openai.ParseBody(line)
	if fault != nil {
		return nil, fault
	}
	var edits []openai.Edit
	for _, member := range []struct{ name, value string }{{"model", c.Model}, {"cache_salt", c.Salt}} {
		if member.value == "" || body.Has(member.name) {
			continue
		}
		value, err := json.Marshal(member.value)
		if err != nil {
			return nil, err
		}
		edits = append(edits, openai.Edit{Name: member.name, Value: value})
	}
	return body.With(edits...), nil
}

// warmJob is one prompt.
type warmJob struct {
	number int
	body   []byte
}

// warm has one prompt computed, by one engine after the other.
func (c *cacheWarmCommand) warm(ctx context.Context, admin string, job warmJob, engines []string) (rows []warmRow) {
	for _, engine := range engines {
		row := warmRow{Prompt: job.number}
		if err := c.post(ctx, admin, engine, job.body, &row.ComputedPrompt); err != nil {
			row.Engine, row.Problem = engine, err.Error()
		}
		rows = append(rows, row)
	}
	return rows
}

func (c *cacheWarmCommand) post(ctx context.Context, admin, engine string, body []byte, into *gateway.ComputedPrompt) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	query := url.Values{}
	for name, value := range map[string]string{"engine": engine, "agent": c.Agent} {
		if value != "" {
			query.Set(name, value)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(admin, "/")+gateway.PathWarm+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	return c.askAdmin(request, into)
}

// askAdmin asks a gateway's admin listener, which may want a key.
func (c *cacheWarmCommand) askAdmin(request *http.Request, into any) error {
	response, err := c.operator.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	const most = 8 << 20
	data, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return openai.ParseError(response.StatusCode, data)
	}
	return json.Unmarshal(data, into)
}

// many has the prompts of a file computed, some at a time. Lines are read as they are
// needed, and rows are in the order of the lines.
func (c *cacheWarmCommand) many(ctx context.Context, std *stdio, admin string, engines []string) ([]warmRow, error) {
	if c.Prompt != "" || c.File != "" || c.Chat || c.System != "" {
		return nil, invalid("put them into the requests", "--requests has prompts of its own")
	}
	from := std.in
	if c.Requests != "-" {
		f, err := os.Open(c.Requests)
		if err != nil {
			return nil, unopened(err)
		}
		defer f.Close()
		from = f
	}
	done := newCounted(std.err, "prompts computed")
	defer done.finish()
	var workers sync.WaitGroup
	var mu sync.Mutex // protects all
	var all [][]warmRow
	jobs := make(chan warmJob)
	for range c.Concurrent {
		workers.Go(func() {
			for job := range jobs {
				rows := c.warm(ctx, admin, job, engines)
				mu.Lock()
				all[job.number-1] = rows
				mu.Unlock()
				done.add()
			}
		})
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), maxWarmBytes)
	number := 0
	var err error
	for err == nil && ctx.Err() == nil && lines.Scan() {
		number++
		mu.Lock()
		all = append(all, nil)
		mu.Unlock()
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var body []byte
		if body, err = c.complete(bytes.Clone(line)); err == nil {
			jobs <- warmJob{number, body}
		}
	}
	close(jobs)
	workers.Wait()
	if err == nil {
		err = lines.Err()
	}
	switch {
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	case err != nil:
		err = invalid("each line is a request with prompt or messages", "%s, line %d: %v", c.Requests, max(number, 1), err)
	}
	var rows []warmRow
	for _, some := range all {
		rows = append(rows, some...)
	}
	return rows, err
}

// print shows what became of prompts, and fails where one was not computed.
func (c *cacheWarmCommand) print(std *stdio, rows []warmRow) error {
	failed := 0
	for i := range rows {
		if rows[i].Problem != "" {
			failed++
		}
	}
	if c.JSON {
		if rows == nil {
			rows = []warmRow{}
		}
		if err := std.writeJSON(map[string]any{"prompts": rows}); err != nil {
			return err
		}
	} else if err := c.table(std, rows); err != nil {
		return err
	}
	if failed == 0 {
		return nil
	}
	problem := ""
	for i := len(rows) - 1; i >= 0; i-- {
		if rows[i].Problem != "" {
			problem = rows[i].Problem
		}
	}
	return fmt.Errorf("of %d prompts %d were not computed, the first: %s", len(rows), failed, problem)
}

func (c *cacheWarmCommand) table(std *stdio, rows []warmRow) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(std.out, "no prompts")
		return err
	}
	table := newTable(std.out, "PROMPT\tENGINE\tAGENT\tTOKENS\tCACHED\tFOUND\tTIME")
	for _, r := range rows {
		if r.Problem != "" {
			fmt.Fprintf(table, "%d\t%s\tnot computed: %s\n", r.Prompt, oneLine(r.Engine), oneLine(r.Problem))
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%d\t%d\t%.1f ms\n", r.Prompt, oneLine(r.Engine), oneLine(r.Agent), r.PromptTokens, r.CachedTokens, r.FoundTokens, r.Ms)
	}
	return table.Flush()
}

// counted shows on a terminal how many of something are done, and nothing anywhere
// else.
type counted struct {
	w    io.Writer
	what string
	mu   sync.Mutex // protects done
	done int
}

func newCounted(w io.Writer, what string) *counted {
	if !onTerminal(w) {
		w = nil
	}
	return &counted{w: w, what: what}
}

func (c *counted) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done++; c.w != nil {
		fmt.Fprintf(c.w, "\r\x1b[K%d %s", c.done, c.what)
	}
}

func (c *counted) finish() {
	if c.w != nil {
		fmt.Fprint(c.w, "\r\x1b[K")
	}
}
