// Package record captures the workload of a running gateway: when requests
// came, how long their parts were, who sent them and which prompts begin alike.
// What was said is in none of it, and none of it leads back to what was said.
//
//	gateway ── GET /debug/records?after=N ──► Recorder ──► file of requests
//	           in the order they ended           │         in the order they came
//	                                             └ waits with a request until none
//	                                               that began before it still runs
package record

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"meridian/prove/replay/workload"
	"meridian/see/ledger"
	"meridian/serve/gateway"
)

// Options configures Run.
type Options struct {
	// Admin is the URL of the gateway's admin listener.
	Admin string
	// For is how long to record; 0 is until the context ends.
	For time.Duration
	// Every is how often the gateway is asked, a second by default.
	Every time.Duration
	// Past takes in what the gateway still remembers from before.
	Past bool
	// Label says in the file what it is.
	Label string
	// HTTP carries requests; nil is the usual client.
	HTTP *http.Client
	// Progress, if it is there, is called after every answer.
	Progress func(Summary)
}

// Summary is what became of a recording.
type Summary struct {
	Requests int `json:"requests"` // written
	Waiting  int `json:"waiting"`  // for older ones that still run
	// LeftOut were refused, or broke off before they had said anything.
	LeftOut int `json:"left_out"`
	// Lost ended faster than they were asked for.
	Lost uint64 `json:"lost"`
	// Late were told of after younger ones had been written, and are written as if
	// they had come with the last of those.
	Late int `json:"late"`
}

const (
	// patience is how long the gateway may take to answer, and how often in a row
	// it may fail to.
	patience = 10 * time.Second
	failures = 5
	// maxAnswer is far beyond what the gateway answers.
	maxAnswer = 64 << 20
	// maxWaiting bounds requests that wait for an older one to end.
	maxWaiting = 1 << 20
	maxTenants = 1 << 16
	// prefixTokens is what the gateway's records cut prompts into.
	prefixTokens = 512
	maxTokens    = 1 << 24
)

// recorder turns records in the order of their end into requests in the order
// of their arrival.
type recorder struct {
	options Options
	out     *workload.Writer
	next    uint64
	begun   bool
	waiting byArrival
	origin  time.Time
	last    time.Duration
	tenants map[uint64]int32
	summary Summary
}

// Run records into out until the time is over or the context ends. That is no
// error: what was captured by then is written.
func Run(ctx context.Context, o Options, out io.Writer) (Summary, error) {
	o.Every = cmp.Or(o.Every, time.Second)
	if o.For < 0 || o.Every < 0 {
		return Summary{}, fmt.Errorf("record: for %v, every %v: neither may be negative", o.For, o.Every)
	}
	w, err := workload.NewWriter(out, workload.Header{Label: cmp.Or(o.Label, "recorded at a gateway"), PrefixTokens: prefixTokens})
	if err != nil {
		return Summary{}, err
	}
	r := &recorder{options: o, out: w, tenants: make(map[uint64]int32)}
	running := ctx
	if o.For > 0 {
		var cancel context.CancelFunc
		running, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	err = r.follow(running)
	// What ended since the last answer, and what waited for others.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err == nil && r.begun {
		_, err = r.poll(last)
	}
	return r.summary, errors.Join(err, r.write(time.Time{}), r.out.Flush())
}

// follow asks until the context ends, or the gateway failed too often.
func (r *recorder) follow(ctx context.Context) error {
	tick := time.NewTicker(r.options.Every)
	defer tick.Stop()
	failed := 0
	for {
		more, err := r.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !r.begun:
			return err // it never answered: a wrong address
		case err != nil:
			if failed++; failed == failures {
				return fmt.Errorf("record: the gateway failed to answer %d times: %w", failures, err)
			}
		default:
			failed = 0
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// poll asks once, and tells whether more is there already.
func (r *recorder) poll(ctx context.Context) (more bool, err error) {
	after := r.next
	if !r.begun && !r.options.Past {
		after = 1<<63 - 1 // beyond all: the answer says where the end is
	}
	answer, err := r.ask(ctx, after)
	if err != nil {
		return false, err
	}
	switch {
	case !r.begun:
		r.begun = true
	case answer.First < r.next:
		return false, errors.New("record: the gateway has begun anew; what it gave numbers before means nothing now, so record again")
	default:
		r.summary.Lost += answer.First - r.next
	}
	r.next = answer.Next
	for _, record := range answer.Records {
		if record != nil {
			r.take(record)
		}
	}
	if err := r.write(answer.Oldest); err != nil {
		return false, err
	}
	if err := r.out.Flush(); err != nil {
		return false, err
	}
	if r.options.Progress != nil {
		r.options.Progress(r.summary)
	}
	return len(answer.Records) > 0, nil
}

func (r *recorder) ask(ctx context.Context, after uint64) (*gateway.Records, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	url := fmt.Sprintf("%s/debug/records?after=%d", strings.TrimSuffix(r.options.Admin, "/"), after)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	response, err := cmp.Or(r.options.HTTP, http.DefaultClient).Do(request)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("record: %s answered %s; is that the admin listener of a gateway?", url, response.Status)
	}
	var answer gateway.Records
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("record: %s: %w", url, err)
	}
	if answer.Next < answer.First || answer.Next-answer.First != uint64(len(answer.Records)) {
		return nil, fmt.Errorf("record: %s told of %d records from %d to %d", url, len(answer.Records), answer.First, answer.Next)
	}
	return &answer, nil
}

// take has a request wait for older ones.
func (r *recorder) take(record *ledger.Record) {
	request, counts := r.request(record)
	if !counts {
		r.summary.LeftOut++
		return
	}
	heap.Push(&r.waiting, arrival{record.Began, request})
	r.summary.Waiting = len(r.waiting)
}

// request is a record as a workload has it; false where nothing was generated.
func (r *recorder) request(record *ledger.Record) (workload.Request, bool) {
	clamp := func(n int) int32 { return int32(min(max(n, 0), maxTokens)) }
	q := workload.Request{Prompt: max(1, clamp(cmp.Or(record.PromptTokens, record.PromptAbout)))}
	generated := clamp(record.OutputTokens)
	if record.Outcome == ledger.Refused || generated == 0 {
		return q, false
	}
	// A thought that was never followed by an answer counts its last token as one.
	q.Think = min(clamp(record.ThinkTokens), generated-1)
	q.Output = generated - q.Think
	q.Tenant = r.tenant(record.Tenant)
	if record.PrefixTokens == prefixTokens {
		// An estimate of a prompt's length may be below what its blocks need.
		most := (int(q.Prompt) + prefixTokens - 1) / prefixTokens
		q.Prefix, q.PrefixTokens = record.Prefix[:min(len(record.Prefix), most)], prefixTokens
	}
	return q, true
}

// tenant numbers senders as they come; all beyond the last number share it.
func (r *recorder) tenant(sender uint64) int32 {
	n, known := r.tenants[sender]
	if !known {
		n = int32(len(r.tenants))
		if n == maxTenants {
			return maxTenants - 1
		}
		r.tenants[sender] = n
	}
	return n
}

// write writes what began before oldest, or all where that is no time.
func (r *recorder) write(oldest time.Time) error {
	for len(r.waiting) > 0 && (oldest.IsZero() || r.waiting[0].began.Before(oldest) || len(r.waiting) > maxWaiting) {
		a := heap.Pop(&r.waiting).(arrival)
		if r.origin.IsZero() {
			r.origin = a.began
		}
		a.request.At = a.began.Sub(r.origin).Truncate(time.Microsecond)
		if a.request.At < r.last {
			a.request.At = r.last
			r.summary.Late++
		}
		if err := r.out.Write(a.request); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		r.last = a.request.At
		r.summary.Requests++
	}
	r.summary.Waiting = len(r.waiting)
	return nil
}

// arrival is a request that ended, and when it began.
type arrival struct {
	began   time.Time
	request workload.Request
}

// byArrival is a heap with the oldest first.
type byArrival []arrival

func (b byArrival) Len() int           { return len(b) }
func (b byArrival) Less(i, j int) bool { return b[i].began.Before(b[j].began) }
func (b byArrival) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *byArrival) Push(x any)        { *b = append(*b, x.(arrival)) }
func (b *byArrival) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

func (s Summary) String() string {
	text := fmt.Sprintf("%d requests", s.Requests)
	for _, part := range []struct {
		count uint64
		what  string
	}{
		{uint64(s.Waiting), "waiting for older ones"},
		{uint64(s.LeftOut), "left out, without an answer"},
		{s.Lost, "lost, faster than they were asked for"},
		{uint64(s.Late), "late, with their order kept"},
	} {
		if part.count > 0 {
			text += fmt.Sprintf(", %d %s", part.count, part.what)
		}
	}
	return text
}
