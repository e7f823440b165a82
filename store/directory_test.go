package store

import (
	"context"
	"testing"
	"time"

	"meridian/meta/memdir"
)

// openDirectory is an empty directory, and a context for what is asked of it.
func openDirectory(t *testing.T) (context.Context, *memdir.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(ctx) })
	return ctx, d
}
