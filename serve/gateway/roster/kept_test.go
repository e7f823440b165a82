package roster

import (
	"fmt"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/member/directory"
)

// With the last engine that shares it, the object cache is gone.
func TestNobodySharesAnyMore(t *testing.T) {
	r := New(Options{Place: usualPlace, Logger: discard})
	f := &follower{roster: r, keys: make(map[string]string)}
	for i, cache := range []string{`,"cache_tokens":64`, `,"cache_tokens":64`, ""} {
		id := fmt.Sprintf("d%d", i)
		f.upsert(directory.Record{Key: directory.EnginePrefix + id, Value: fmt.Appendf(nil, `{"id":%q,"incarnation":"1","url":"http://h:1","role":"decode","model":"m"%s}`, id, cache)})
	}
	p, _ := placement.OfText("m", make([]byte, 1024))
	r.NoteKept(p, time.Now())
	r.remove("d0@1")
	r.remove("d2@1")
	if got := r.kept.Len(); got != 4 {
		t.Fatalf("%d chunks are believed to be kept while one shares, want 4", got)
	}
	r.orphan("d1@1") // its agent is gone, and the memory with it
	if got := r.kept.Len(); got != 0 {
		t.Errorf("%d chunks are believed to be kept by no engine", got)
	}
}
