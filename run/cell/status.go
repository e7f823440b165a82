package cell

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Status is a cell as it is found now, whatever its record says.
type Status struct {
	StateDir string    `json:"state_dir"`
	Started  time.Time `json:"started"`
	// Supervisor is the process that watches over the cell, if it runs.
	Supervisor int          `json:"supervisor,omitempty"`
	Model      string       `json:"model"`
	Gateway    string       `json:"gateway,omitempty"`
	Admin      string       `json:"admin,omitempty"`
	AllUp      bool         `json:"all_up"`
	Parts      []PartStatus `json:"parts"`
}

// PartStatus is one part of it.
type PartStatus struct {
	PartRecord
	// Up is whether its process runs and has said that it is ready.
	Up bool `json:"up"`
	// Stats is what an engine says of itself.
	Stats *EngineStats `json:"stats,omitempty"`
	// Problem is why there is none, or what a worker or the gateway lacks.
	Problem string `json:"problem,omitempty"`
}

// EngineStats is what is shown of an engine's /stats.
type EngineStats struct {
	Cut    string `json:"cut"`
	Blocks struct {
		Total  int `json:"total"`
		Free   int `json:"free"`
		Cached int `json:"cached"`
		Held   int `json:"held"`
	} `json:"blocks"`
	Running  int `json:"running"`
	Waiting  int `json:"waiting"`
	HandOffs struct {
		Ready  int `json:"ready"`
		Failed int `json:"failed"`
		Local  int `json:"local"`
	} `json:"handoffs"`
	Tokens struct {
		Prompt    int64 `json:"prompt"`
		Generated int64 `json:"generated"`
		// HandedOver is how many tokens of prompts came from others, as vLLM
		// counts; reference engines count hand-offs.
		HandedOver int64 `json:"handed_over,omitempty"`
	} `json:"tokens"`
	Door     string `json:"door,omitempty"`
	Counters struct {
		// FoundTokens is how many came from the cell's shared cache.
		FoundTokens int64 `json:"found_tokens,omitempty"`
	} `json:"counters,omitzero"`
}

// doorLost is what a reference engine says of its door while its agent is away.
const doorLost = "lost"

// askTimeout is how long a part may take to tell how it is.
const askTimeout = 2 * time.Second

// ReadStatus looks at the cell of a state directory.
func ReadStatus(ctx context.Context, dir string) (*Status, error) {
	r, err := ReadRecord(dir)
	if err != nil {
		return nil, err
	}
	s := &Status{StateDir: dir, Started: r.Started, Model: r.Model, Gateway: r.Gateway, Admin: r.Admin, Parts: make([]PartStatus, len(r.Parts))}
	if r.Supervisor.Alive() {
		s.Supervisor = r.Supervisor.PID
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for i, p := range r.Parts {
		s.Parts[i] = PartStatus{PartRecord: p}
		asked.Go(func() { s.Parts[i].look(ctx) })
	}
	asked.Wait()
	s.AllUp = s.Supervisor != 0
	for _, p := range s.Parts {
		s.AllUp = s.AllUp && p.Up && p.Problem == ""
	}
	return s, nil
}

func (p *PartStatus) look(ctx context.Context) {
	if p.Process == nil {
		p.Problem = p.LastEnd
		return
	}
	if !p.Process.Alive() {
		p.Problem = "its process is gone"
		return
	}
	p.Up = p.State == Ready
	if !p.Up {
		return
	}
	var err error
	switch p.Kind {
	case Prefill, Decode, Both:
		p.Stats, err = readStats(ctx, p.Engine, p.URL)
		if err == nil && p.Stats.Door == doorLost {
			p.Problem = "its agent does not answer: it serves alone, hands nothing over, and registers when the agent is back"
		}
	case Gateway:
		err = getJSON(ctx, p.URL+"/ready", nil)
	case Directory, Agent, Beside:
	}
	if err != nil {
		p.Problem = err.Error()
	}
}

// Stats is what a worker says of itself now.
func (c *Cell) Stats(ctx context.Context, part string) (*EngineStats, error) {
	p := c.Record().Part(part)
	if p == nil || p.URL == "" {
		return nil, fmt.Errorf("cell: %s does not serve", part)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stats, err := readStats(ctx, p.Engine, p.URL)
	if err != nil {
		return nil, fmt.Errorf("cell: %s: %w", part, err)
	}
	return stats, nil
}

// HandedTokens is how many tokens of prompts decode workers have taken from
// prefill workers, as those of them say that count tokens.
func (c *Cell) HandedTokens(ctx context.Context) (total int64, err error) {
	for _, p := range c.Record().Parts {
		if p.Kind != Decode || p.Engine != EngineVLLM {
			continue
		}
		stats, err := c.Stats(ctx, p.Name)
		if err != nil {
			return 0, err
		}
		total += stats.Tokens.HandedOver
	}
	return total, nil
}

// FoundTokens is how many tokens of prompts a worker has taken from the cell's shared
// cache.
func (c *Cell) FoundTokens(ctx context.Context, part string) (int64, error) {
	stats, err := c.Stats(ctx, part)
	if err != nil {
		return 0, err
	}
	return stats.Counters.FoundTokens, nil
}

func readStats(ctx context.Context, e Engine, url string) (*EngineStats, error) {
	if e == EngineVLLM {
		return readVLLM(ctx, url)
	}
	stats := new(EngineStats)
	if err := getJSON(ctx, url+"/stats", stats); err != nil {
		return nil, err
	}
	return stats, nil
}

const maxStatsBytes = 1 << 20

// getJSON fetches into v, or only looks whether the answer is good.
func getJSON(ctx context.Context, url string, v any) error {
	return getJSONBy(ctx, client, url, v)
}

func getJSONBy(ctx context.Context, client *http.Client, url string, v any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatsBytes))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %.200s", url, response.Status, body)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return errors.Join(fmt.Errorf("%s does not answer with what is expected", url), err)
	}
	return nil
}

// client is for parts of this machine: no proxy, no idle connections to keep.
// It tells nothing and believes little, so it asks no certificate for its name.
var client = &http.Client{Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}
