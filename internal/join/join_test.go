package join

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second sync.WaitGroup
		first.Add(1)
		second.Add(1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Within(ended, "room: closing", first.Wait, second.Wait); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "room: closing: ") {
			t.Errorf("with a context that has ended: %v", err)
		}
		joined := make(chan error, 1)
		go func() { joined <- Within(t.Context(), "room: closing", first.Wait, second.Wait) }()
		for _, running := range []*sync.WaitGroup{&first, &second} {
			synctest.Wait()
			if len(joined) != 0 {
				t.Fatal("it did not wait")
			}
			running.Done()
		}
		if err := <-joined; err != nil {
			t.Error(err)
		}
	})
}
