package store

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"meridian/member/directory"
	"meridian/member/directory/memdir"
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

// putRecord writes a value as JSON.
func putRecord(t *testing.T, d *memdir.Client, key string, value any) {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err == nil {
		_, err = d.Put(t.Context(), directory.Entry{Key: key, Value: encoded})
	}
	if err != nil {
		t.Fatal(err)
	}
}
