package roster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"meridian/member/directory"
	"meridian/serve/openai"
)

// prober asks engines whether they are there, again and again: one that hangs has
// an agent and a record, and only its silence tells.
type prober struct {
	roster   *Roster
	client   *http.Client
	interval time.Duration
	timeout  time.Duration
	soon     chan struct{} // an engine came or failed: do not wait for the interval
	active   sync.WaitGroup
	// drains is told of an engine that says it is about to go, every time it says so.
	drains func(*Engine)
}

// Bounds of what an engine may say of itself.
const (
	maxProbeBytes = 1 << 20
	maxModels     = 1024
	maxModelName  = 512 // bytes
)

// errDrains is what an engine says that takes no more requests and lets those go that run.
var errDrains = errors.New("it drains")

// hurry has engines probed soon.
func (p *prober) hurry() {
	select {
	case p.soon <- struct{}{}:
	default: // it will
	}
}

func (p *prober) run(ctx context.Context) {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	defer p.active.Wait()
	for {
		p.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.soon:
		}
	}
}

// round probes every engine that is not being probed. It does not wait
// for them: one that hangs must not hide one that comes.
func (p *prober) round(ctx context.Context) {
	for _, e := range p.roster.All() {
		if e.probing.CompareAndSwap(false, true) {
			p.active.Go(func() {
				defer e.probing.Store(false)
				p.probe(ctx, e)
			})
		}
	}
}

func (p *prober) probe(ctx context.Context, e *Engine) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	_, err := p.get(ctx, e, "/health")
	var found *About
	first := !e.About.Load().Asked
	// A listed engine that comes back may be another, with other models.
	if err == nil && (first || e.listed && !e.Up.Load()) {
		found, err = p.discover(ctx, e)
	}
	switch {
	case err == nil:
		if p.roster.Answered(e, found) {
			p.roster.logger.Info("an engine answers", "engine", e.Name(), "url", e.URL)
		}
		if first {
			p.roster.followCaches(e, p.sources(ctx, e, found))
		}
	case errors.Is(ctx.Err(), context.Canceled): // the gateway ends
	case e.Stray.Load() && p.roster.removeStray(e):
		p.roster.logger.Info("an engine is gone", "engine", e.Name(), "url", e.URL)
	default:
		if e.MarkFailed(err, err.Error()) {
			p.roster.logger.Warn("an engine does not answer", "engine", e.Name(), "url", e.URL, "error", err)
		}
		if errors.Is(err, errDrains) {
			p.drains(e)
		}
	}
}

func (p *prober) discover(ctx context.Context, e *Engine) (*About, error) {
	data, err := p.get(ctx, e, openai.PathModels)
	if err != nil {
		return nil, err
	}
	a := e.given // and nothing of what it said in another life
	odd, err := a.list(data)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", e.URL, openai.PathModels, err)
	}
	if odd != nil {
		p.roster.logger.Warn("an engine lists models that cannot be served; they are left out", "engine", e.Name(), "url", e.URL, "error", odd)
	}
	if a.Kind == openai.KindMeridian && e.listed && a.ID == "" {
		var stats struct {
			Engine string `json:"engine"`
		}
		if data, err := p.get(ctx, e, "/stats"); err == nil && json.Unmarshal(data, &stats) == nil {
			if len(stats.Engine) <= 255 && !strings.Contains(stats.Engine, "/") && directory.CheckKey(directory.EnginePrefix+stats.Engine) == nil {
				a.ID = stats.Engine // else an agent knows it by another name
			}
		}
	}
	a.Nameless = a.ID == ""
	a.ID = cmp.Or(a.ID, strings.TrimPrefix(strings.TrimPrefix(e.URL, "https://"), "http://"))
	return &a, nil
}

// list takes in the list of an engine's models. An empty one leaves what was known;
// of others, what cannot be served is left out, and odd says why. It fails where
// nothing is left.
func (a *About) list(data []byte) (odd, err error) {
	var list struct{ Data []json.RawMessage }
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	a.Asked = true
	if len(list.Data) == 0 {
		return nil, nil
	}
	a.Models, a.cards, a.adapters = nil, make(map[string]json.RawMessage), nil
	for _, card := range list.Data {
		if len(a.Models) == maxModels {
			return fmt.Errorf("it lists more than %d models", maxModels), nil
		}
		if err := a.show(card); err != nil {
			odd = err
		}
	}
	if len(a.Models) == 0 {
		return nil, odd
	}
	return odd, nil
}

// show takes in a model as an engine shows it.
func (a *About) show(card json.RawMessage) error {
	var m openai.Model
	if err := json.Unmarshal(card, &m); err != nil {
		return err
	}
	if m.ID == "" || len(m.ID) > maxModelName || strings.ContainsFunc(m.ID, unicode.IsControl) {
		return fmt.Errorf("a model's name has 1 to %d bytes that can be shown, not %.80q", maxModelName, m.ID)
	}
	a.Models = append(a.Models, m.ID)
	a.cards[m.ID] = card
	if m.Parent != nil {
		a.adapters = append(a.adapters, m.ID)
	}
	a.MaxContext = max(a.MaxContext, m.MaxModelLen)
	switch m.OwnedBy {
	case openai.OwnedByMeridian:
		a.Kind = openai.KindMeridian
	case "vllm":
		a.Kind = openai.KindVLLM
	}
	return nil
}

// sources are where an engine publishes what its cache holds. vLLM tells, of
// late; what it does not tell can be configured.
func (p *prober) sources(ctx context.Context, e *Engine, found *About) []source {
	c := e.cacheEvents
	if c.Off || c.Events != "" || found.Kind != openai.KindVLLM {
		return nil
	}
	data, err := p.get(ctx, e, "/kv_event_sources")
	if err != nil {
		return nil // it does not publish, or is of an older kind
	}
	sources, err := parseSources(data, e.URL)
	if err != nil {
		p.roster.logger.Warn("an engine tells where it publishes its cache's events, which cannot be read", "engine", found.ID, "error", err)
	}
	return sources
}

func (p *prober) get(ctx context.Context, e *Engine, path string) ([]byte, error) {
	url := e.URL + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if e.Authorization != "" {
		request.Header.Set("Authorization", e.Authorization)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxProbeBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered with status %d", url, response.StatusCode)
		if response.StatusCode == http.StatusServiceUnavailable && openai.HasCode(data, openai.CodeDraining) {
			err = fmt.Errorf("%w: %w", err, errDrains)
		}
	}
	return data, err
}

const (
	// askRoomTimeout is how long engines may take to tell how much room they have. One that took
	// longer is left out, and not asked again for silentRest: all others would wait for it.
	askRoomTimeout = 250 * time.Millisecond
	silentRest     = time.Second
)

// maxRoom is more than any engine has requests or room for.
const maxRoom = 1 << 20

// askRoom has engines tell how many requests they would begin at once.
func (p *prober) askRoom(ctx context.Context, engines []*Engine) {
	ctx, cancel := context.WithTimeout(ctx, askRoomTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, e := range engines {
		if time.Since(e.silentAt) < silentRest {
			continue
		}
		asking.Go(func() {
			var stats struct{ Room, Running, Fetching, Waiting int64 }
			data, err := p.get(ctx, e, "/stats")
			if err == nil {
				err = json.Unmarshal(data, &stats)
			}
			if err != nil { // then none leaves for it
				stats.Room, stats.Running, stats.Fetching, stats.Waiting = 0, 0, 0, 0
				if ctx.Err() != nil {
					e.silentAt = time.Now()
				}
			}
			e.room.Store(min(max(stats.Room, 0), maxRoom))
			p.roster.hasRoom(e)
			e.all.Store(min(max(stats.Running, 0), maxRoom) + min(max(stats.Fetching, 0), maxRoom) + min(max(stats.Waiting, 0), maxRoom))
		})
	}
	asking.Wait()
}
