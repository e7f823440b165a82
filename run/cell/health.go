package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	healthPause = 100 * time.Millisecond
	healthLimit = 2 * time.Second
)

// watchHealth asks a process that says nothing whether it serves, and closes
// healthy when it does; done ends the asking. Of one that says so by itself,
// nothing is asked.
func (p Plan) watchHealth() (healthy <-chan struct{}, done func()) {
	if p.Health == "" {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	answered, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for !p.answers(ctx) {
			select {
			case <-time.After(healthPause):
			case <-ctx.Done():
				return
			}
		}
		close(answered)
	}()
	return answered, func() {
		cancel()
		<-ended
	}
}

func (p Plan) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	return getJSON(ctx, p.Health, nil) == nil
}

var errLate = errors.New("it takes too long")

// awaitService waits until the gateway has found every worker. It serves as
// soon as it knows one that decodes, which would then compute prompts, too.
func (c *Cell) awaitService(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Ready, errLate)
	defer cancel()
	var why error // of the last answer that was not cut short
	for {
		err := c.FindsWorkers(ctx)
		if err == nil {
			return nil
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errLate) {
				return fmt.Errorf("cell: stopped while the gateway was looking for engines: %w", cause)
			}
			return fmt.Errorf("cell: the gateway has not found all workers after %v: %w; `meridian logs gateway` may tell why", c.options.Ready, why)
		}
	}
}

// FindsWorkers asks the gateway whether every worker is known and answers.
func (c *Cell) FindsWorkers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	r := c.Record()
	var health struct {
		Engines []struct {
			URL string `json:"url"`
			Up  bool   `json:"up"`
		} `json:"engines"`
	}
	if err := getJSONBy(ctx, cmp.Or(c.options.Operator, client), r.Admin+"/health", &health); err != nil {
		return err
	}
	found := make(map[string]bool)
	for _, e := range health.Engines {
		found[e.URL] = e.Up
	}
	var missing []string
	for _, p := range r.Parts {
		if (p.Kind == Prefill || p.Kind == Decode) && !found[p.URL] {
			missing = append(missing, p.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("it does not know %s, or gets no answer there", strings.Join(missing, ", "))
	}
	return nil
}
