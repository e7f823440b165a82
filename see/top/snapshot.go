// Package top shows a cell in a terminal: who works on what, how fast caches move, how
// long requests take and where memory goes. It asks the processes of a cell for the
// metrics that they show anyway, and nothing else of them:
//
//	Sources ──► Take: Look ─┬─► Compare: Figures ──► JSON, or a screen
//	             the one before ┘
package top

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Source is where one process shows its metrics.
type Source struct {
	Kind string // agent, gateway or engine
	Name string
	Role string // of an engine
	URL  string
	// Client asks it; nil is the usual one.
	Client *http.Client
}

// Snapshot is what all processes of a cell said at one moment.
type Snapshot struct {
	At       time.Time
	sources  []Source
	pages    map[Source]series
	problems map[Source]string
	handOffs []HandOff
}

const (
	askTimeout = 2 * time.Second
	// maxAsked bounds how many processes are asked at a time.
	maxAsked = 32
)

// client asks without a proxy, and keeps connections for the next look.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second}}

// Take asks every source, each for no longer than two seconds.
func Take(ctx context.Context, sources []Source) *Snapshot {
	l := &Snapshot{sources: sources, pages: make(map[Source]series), problems: make(map[Source]string)}
	var asked sync.WaitGroup
	var mu sync.Mutex // protects l
	places := make(chan struct{}, maxAsked)
	for _, source := range sources {
		asked.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			page, err := readPage(ctx, source)
			var slow []HandOff
			if err == nil && source.Kind == "gateway" {
				slow = readHandOffs(ctx, source)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				l.problems[source] = err.Error()
				return
			}
			l.pages[source] = page
			l.handOffs = append(l.handOffs, slow...)
		})
	}
	asked.Wait()
	l.At = time.Now()
	return l
}

func get(ctx context.Context, by *http.Client, url string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := cmp.Or(by, client).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return read(response.Body)
}

func readPage(ctx context.Context, of Source) (page series, err error) {
	err = get(ctx, of.Client, of.URL, func(body io.Reader) error {
		page = parse(body)
		return nil
	})
	return page, err
}

// readHandOffs are those of the last requests, of a gateway whose debug pages are
// beside its metrics; none of another.
func readHandOffs(ctx context.Context, of Source) []HandOff {
	var answer struct {
		Latest []struct {
			ID      string `json:"id"`
			Latency struct {
				Ms float64 `json:"handoff_ms"`
			} `json:"latency"`
			Legs []struct {
				Kind   string `json:"kind"`
				Engine string `json:"engine"`
			} `json:"legs"`
		} `json:"latest"`
	}
	url := strings.TrimSuffix(of.URL, "/metrics") + "/debug/requests"
	if err := get(ctx, of.Client, url, func(body io.Reader) error { return json.NewDecoder(io.LimitReader(body, maxPageBytes)).Decode(&answer) }); err != nil {
		return nil
	}
	var all []HandOff
	for _, r := range answer.Latest {
		if r.Latency.Ms <= 0 {
			continue
		}
		h := HandOff{Request: r.ID, Ms: r.Latency.Ms}
		for _, leg := range r.Legs {
			if leg.Kind == "prefill" {
				h.From = leg.Engine
			} else {
				h.To = leg.Engine
			}
		}
		all = append(all, h)
	}
	return all
}

// slowest are the hand-offs that took longest among the last requests.
func (l *Snapshot) slowest() []HandOff {
	all := slices.Clone(l.handOffs)
	slices.SortFunc(all, func(a, b HandOff) int { return cmp.Or(cmp.Compare(b.Ms, a.Ms), cmp.Compare(a.Request, b.Request)) })
	return append([]HandOff{}, all[:min(len(all), maxSlowest)]...)
}

func (l *Snapshot) silent() []string {
	all := []string{}
	for source, why := range l.problems {
		all = append(all, fmt.Sprintf("%s %s: %s", source.Kind, source.Name, why))
	}
	slices.Sort(all)
	return all
}
