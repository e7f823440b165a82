package cell

import (
	"context"
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
