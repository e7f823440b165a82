// Package load drives a live OpenAI endpoint with a workload and measures what
// its clients see, by the definitions that a replay has. The loop is open, unless
// Closed is asked for: requests are sent when the workload says, whether or not
// earlier ones have been answered.
//
//	Source ─► prompt of that length ─► wait until it is due ─► POST, stream ─► Meter ─► Report
//	                                   (one ahead)             (one goroutine each, bounded)
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"meridian/internal/clip"
	"meridian/prove/replay"
	"meridian/prove/replay/workload"
	"meridian/run/cell/openaiclient"
)

// Options configures Run.
type Options struct {
	// URL is the endpoint's, without /v1; Key is sent where there is one.
	URL, Key string
	// Model is asked for; empty is the first that the endpoint lists.
	Model string
	// HTTP carries requests; nil is a client with as many connections as needed.
	HTTP *http.Client
	// Completions sends prompts of token ids, which are exactly as long as the
	// workload says; otherwise chats are sent, whose length is calibrated, and
	// thoughts are told from answers.
	Completions bool
	// Vocabulary is how many ids prompts are made of, 256 by default, which every
	// model has.
	Vocabulary int
	// Script says how long to think, to engines that play a model which does.
	Script bool
	// Plain leaves out what is not in OpenAI's own API: answers are then only at
	// most as long as the workload says.
	Plain bool
	// Timeout bounds one request, 10 minutes by default.
	Timeout time.Duration
	// MaxRunning is how many requests may be under way, 1,024 by default. What
	// comes beyond is not sent, and counted.
	MaxRunning int
	// Closed has every request wait, in order, until fewer than MaxRunning are under way,
	// and be sent then, whenever the workload has it.
	Closed bool
	// Seed makes the prompts.
	Seed uint64
	// Progress, if it is there, is called about once a second.
	Progress func(Progress)
	// Answered, if it is there, is told of each request that is complete, one after the other.
	Answered func(Answer)
}

// Answer is a request that is complete, as its client saw it.
type Answer struct {
	Number int    // of the request in its workload
	ID     string // as the gateway calls it, "" where the endpoint is none
	// First is when its first token came.
	Sent, First    time.Time
	Prompt, Cached int
}

// Progress is where a run stands.
type Progress struct {
	At                                       time.Duration
	Sent, Running, Complete, Failed, NotSent int
}

// Report is what a run found.
type Report struct {
	Endpoint string         `json:"endpoint"`
	Model    string         `json:"model"`
	Result   *replay.Result `json:"result"`
	Sent     int            `json:"sent"`
	Complete int            `json:"complete"`
	Failed   int            `json:"failed"`
	NotSent  int            `json:"not_sent"` // more were under way than may be
	// PromptAsked and Prompt are mean lengths of what is complete: as the workload
	// has it, and as the endpoint counted. Shorter answers are those that ended before their length.
	PromptAsked float64 `json:"prompt_asked"`
	Prompt      float64 `json:"prompt"`
	Shorter     int     `json:"shorter"`
	// LateSeconds is how long after its time the latest request was sent: what
	// the machine that makes the load did not keep up with.
	LateSeconds float64 `json:"late_seconds"`
	// Problems are why requests failed; of many kinds the first.
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is a reason why requests failed.
type Problem struct {
	Text  string `json:"text"`
	Count int    `json:"count"`
}

const (
	maxProblems    = 8
	maxProblemText = 256
)

func (o Options) withDefaults() (Options, error) {
	o.URL = strings.TrimSuffix(strings.TrimSuffix(o.URL, "/"), "/v1")
	o.Timeout, o.MaxRunning, o.Vocabulary = cmp.Or(o.Timeout, 10*time.Minute), cmp.Or(o.MaxRunning, 1024), cmp.Or(o.Vocabulary, 256)
	switch {
	case o.URL == "":
		return o, errors.New("load: no URL of an endpoint")
	case o.Timeout < 0 || o.MaxRunning < 1 || o.Vocabulary < 16:
		return o, fmt.Errorf("load: a timeout of %v, %d requests under way and %d ids: the first may not be negative, there must be one and 16 of the others",
			o.Timeout, o.MaxRunning, o.Vocabulary)
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: o.MaxRunning, DisableCompression: true, Proxy: http.ProxyFromEnvironment,
		}}
	}
	return o, nil
}

// run is one load.
type run struct {
	options Options
	prompts prompter
	began   time.Time
	places  chan struct{} // one for each request that may be under way
	active  sync.WaitGroup

	mu     sync.Mutex // protects what follows
	meter  *replay.Meter
	report Report
	asked  float64
	prompt float64
	kinds  map[string]int // where each is in the report
}

// Run sends a workload to its end, or until the context ends: then what is under
// way is broken off, and the report tells of what was complete.
func Run(ctx context.Context, o Options, source workload.Source) (*Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.choose(ctx); err != nil {
		return nil, err
	}
	r := &run{options: o, places: make(chan struct{}, o.MaxRunning), meter: replay.NewMeter(replay.SLO{}), kinds: make(map[string]int)}
	if r.prompts, err = newPrompter(ctx, o); err != nil {
		return nil, err
	}
	defer o.HTTP.CloseIdleConnections()
	r.report.Endpoint, r.report.Model = o.URL, o.Model
	r.began = time.Now()
	stop := r.tell()
	err = r.send(ctx, source)
	r.active.Wait()
	stop()
	return r.finish(), errors.Join(err, source.Err())
}

// choose asks which model there is, which also tells whether an endpoint answers.
func (o *Options) choose(ctx context.Context) error {
	if o.Model != "" {
		return nil
	}
	models, err := o.client().Models(ctx)
	if err != nil {
		return fmt.Errorf("load: which models %s has: %w", o.URL, err)
	}
	if len(models) == 0 {
		return fmt.Errorf("load: %s lists no model", o.URL)
	}
	o.Model = models[0].ID
	return nil
}

func (o *Options) client() *openaiclient.Client {
	return &openaiclient.Client{URL: o.URL, Key: o.Key, HTTP: o.HTTP}
}

// send starts each request when it is due.
func (r *run) send(ctx context.Context, source workload.Source) error {
	due := time.NewTimer(0)
	defer due.Stop()
	for number := 0; ; number++ {
		q, more := source.Next()
		if !more {
			return nil
		}
		body, err := r.prompts.body(q, number)
		if err != nil {
			return err
		}
		if r.options.Closed {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case r.places <- struct{}{}:
			}
			q.At = time.Since(r.began)
		} else {
			due.Reset(time.Until(r.began.Add(q.At)))
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-due.C:
			}
			select {
			case r.places <- struct{}{}:
			default:
				r.notSent(q)
				continue
			}
		}
		r.sent(q)
		r.active.Go(func() {
			defer func() { <-r.places }()
			r.took(q, number, r.ask(ctx, q, body))
		})
	}
}

func (r *run) sent(q workload.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Sent++
	r.report.LateSeconds = max(r.report.LateSeconds, (time.Since(r.began) - q.At).Seconds())
}

func (r *run) notSent(q workload.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.NotSent++
	r.meter.Add(replay.Measured{Arrived: q.At})
}

// took counts what came of a request.
func (r *run) took(q workload.Request, number int, h heard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meter.Add(replay.Measured{Arrived: q.At, Prompt: h.prompt, Cached: h.cached, Chunks: h.chunks, Complete: h.err == nil})
	if h.err == nil {
		r.report.Complete++
		r.asked, r.prompt = r.asked+float64(q.Prompt), r.prompt+float64(h.prompt)
		if h.tokens < q.Think+q.Output {
			r.report.Shorter++
		}
		if r.options.Answered != nil {
			r.options.Answered(Answer{Number: number, ID: h.id, Sent: r.began.Add(q.At), First: r.began.Add(h.chunks[0].At), Prompt: int(h.prompt), Cached: int(h.cached)})
		}
		return
	}
	r.report.Failed++
	r.problem(clip.Text(h.err.Error(), maxProblemText, "…"))
}

// problem counts a problem. Those that differ only in numbers are one, told as
// it was first.
func (r *run) problem(text string) {
	kind := numbers.ReplaceAllString(text, "0")
	i, known := r.kinds[kind]
	if !known && len(r.report.Problems) < maxProblems {
		i, known = len(r.report.Problems), true
		r.report.Problems = append(r.report.Problems, Problem{Text: text})
		r.kinds[kind] = i
	}
	if !known {
		i = maxProblems - 1
		r.report.Problems[i].Text = "other problems, such as: " + text
	}
	r.report.Problems[i].Count++
}

var numbers = regexp.MustCompile("[0-9]+")

// tell tells of progress until stop is called, which waits for it.
func (r *run) tell() (stop func()) {
	if r.options.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.options.Progress(r.progress())
			}
		}
	})
	return func() {
		close(done)
		teller.Wait()
	}
}

func (r *run) progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{At: time.Since(r.began), Sent: r.report.Sent, Complete: r.report.Complete, Failed: r.report.Failed, NotSent: r.report.NotSent}
	p.Running = p.Sent - p.Complete - p.Failed
	return p
}

func (r *run) finish() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.report
	report.PromptAsked = r.asked / float64(max(report.Complete, 1))
	report.Prompt = r.prompt / float64(max(report.Complete, 1))
	report.Result = r.meter.Result(report.Endpoint)
	return &report
}
