// Package join waits for what a room has started, as long as a context lasts: a
// sync.WaitGroup knows no context.
package join

import (
	"context"
	"fmt"
)

// Within calls each wait, one after the other, and returns nil when all have
// returned. When ctx ends first, the error says what was being done; the waits
// go on, and Within may be called again.
func Within(ctx context.Context, what string, waits ...func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, wait := range waits {
			wait()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}
