package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"meridian/prove/bench"
	"meridian/see/telemetry"
)

// Scrape is what it takes to read metrics.
type Scrape struct {
	Series  int     `json:"series"`
	Bytes   int     `json:"bytes"`
	Scrapes int     `json:"scrapes"`
	P50Ms   float64 `json:"p50_ms"`
	P99Ms   float64 `json:"p99_ms"`
	// CPUMs is what a scrape takes of a core, by who asks and who answers together: the
	// time from request to answer is longer where others use the cores.
	CPUMs float64 `json:"cpu_ms"`
}

const (
	scrapedSeries = 10_000
	scrapes       = 100
)

// measureScrape asks an endpoint for so many series over HTTP, as Prometheus does, from
// the request to the last byte.
func measureScrape(ctx context.Context) (s Scrape, err error) {
	codes := make([]string, scrapedSeries) // rooms have their labels at hand, too
	for i := range codes {
		codes[i] = fmt.Sprintf("code-%d", i)
	}
	var opened bench.Opened
	defer func() { err = errors.Join(err, opened.CloseWithin(closeLimit)) }()
	t, err := telemetry.Open(ctx, telemetry.Options{Listen: "127.0.0.1:0", Sources: []telemetry.Source{func(sink *telemetry.Sink) {
		for i, code := range codes {
			sink.Value("meridian_door_refused_total", float64(i), code)
		}
	}}})
	if err != nil {
		return s, err
	}
	opened.Closes(t.Close)
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	took := make([]time.Duration, 0, scrapes)
	used := -bench.CPUTime(os.Getpid())
	for range scrapes {
		start := time.Now()
		page, err := scrape(ctx, &client, "http://"+t.Addr()+"/metrics")
		if err != nil {
			return s, err
		}
		took = append(took, time.Since(start))
		if s.Series, s.Bytes = bytes.Count(page, []byte("\nmeridian_door_refused_total{")), len(page); s.Series != scrapedSeries {
			return s, fmt.Errorf("bench: a scrape has %d series of %d", s.Series, scrapedSeries)
		}
	}
	used += bench.CPUTime(os.Getpid())
	s.CPUMs = bench.Rounded(used.Seconds() * 1e3 / scrapes)
	s.Scrapes, s.P50Ms, s.P99Ms = scrapes, bench.Rounded(bench.Percentile(took, 50)/1e3), bench.Rounded(bench.Percentile(took, 99)/1e3)
	return s, nil
}

func scrape(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("bench: /metrics answers %s", response.Status)
	}
	return io.ReadAll(response.Body)
}
