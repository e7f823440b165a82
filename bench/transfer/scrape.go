package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"meridian/bench"
	"meridian/telemetry"
)

// Scrape is what it takes to read metrics.
type Scrape struct {
	Series  int     `json:"series"`
	Bytes   int     `json:"bytes"`
	Scrapes int     `json:"scrapes"`
	P50Ms   float64 `json:"p50_ms"`
	P99Ms   float64 `json:"p99_ms"`
}

const (
	scrapedSeries = 10_000
	scrapes       = 100
)

// measureScrape asks an endpoint for so many series over HTTP, from the request to the
// last byte.
func measureScrape(ctx context.Context) (s Scrape, err error) {
	t, err := telemetry.Open(ctx, telemetry.Options{Listen: "127.0.0.1:0", Sources: []telemetry.Source{func(sink *telemetry.Sink) {
		for i := range scrapedSeries {
			sink.Value("meridian_door_refused_total", float64(i), fmt.Sprintf("code-%d", i))
		}
	}}})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, closeSoon(t.Close)) }()
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	took := make([]time.Duration, 0, scrapes)
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
	s.Scrapes, s.P50Ms, s.P99Ms = scrapes, bench.Rounded(bench.Percentile(took, 50)/1e3), bench.Rounded(bench.Percentile(took, 99)/1e3)
	return s, nil
}

func scrape(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
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
