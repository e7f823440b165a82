package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/trust"
	"meridian/serve/gateway/request"
)

// Whatever stands in the directory as an engine, the gateway goes on: it passes the
// record over, or has an engine that it can place requests on and make promises of.
func FuzzEngineRecords(f *testing.F) {
	record := `{"id":"e","incarnation":"1","home":"a","home_incarnation":"%s","url":"http://127.0.0.1:1","role":"both","model":"m","blocks":%s,"block_tokens":%[2]s}`
	for _, value := range []string{
		"", "null", "{}", `{"id":"e"}`,
		fmt.Sprintf(record, strings.Repeat("ab", 16), "16"),
		fmt.Sprintf(record, strings.Repeat("ab", 17), "16"), // longer than an incarnation is
		fmt.Sprintf(record, "abc", "-1"),
		fmt.Sprintf(record, "", "1073741824"),
		fmt.Sprintf(record, "", "9223372036854775807"),
		`{"id":"e","url":"http://h:1","role":"decode"}`,
		`{"id":"e","url":"http://[::1","role":"decode"}`,
	} {
		f.Add([]byte(value))
	}
	key := [32]byte{1}
	f.Fuzz(func(t *testing.T, value []byte) {
		r := newRoster(usualPlace)
		follower := &follower{roster: r, hurry: func() {}, logger: discard, keys: make(map[string]string)}
		stored := directory.Record{Key: directory.EnginePrefix + "e", Value: value, Revision: 1}
		follower.take(directory.Event{Kind: directory.Resync, Records: []directory.Record{stored}})
		follower.take(directory.Event{Kind: directory.Put, Record: stored})
		a, fault := request.Parse("/v1/completions", []byte(`{"model":"m","prompt":"`+strings.Repeat("p", 600)+`"}`))
		if fault != nil {
			t.Fatal(fault)
		}
		for _, e := range r.all() {
			r.learn(e, &about{id: e.id(), models: []string{"m"}, asked: true})
			r.note(e.key, a.Prefix, time.Now())
			l := legs{request: a, key: &key}
			l.prefill(kv.ID{1}, trust.Trace{}, e.about.Load(), true)
			if home := e.home.Load(); home != nil {
				l.promise(kv.ID{1}, home)
			}
		}
		r.candidates(wanted{request: a, avoid: func(string) bool { return false }}, time.Now())
		follower.take(directory.Event{Kind: directory.Delete, Record: stored})
	})
}

// However many engines stand in the directory, the gateway asks a bounded number,
// and those that left make room.
func TestTooManyEngines(t *testing.T) {
	r := newRoster(usualPlace)
	f := &follower{roster: r, hurry: func() {}, logger: discard, keys: make(map[string]string)}
	put := func(i int) directory.Record {
		id := fmt.Sprint("e", i)
		stored := directory.Record{Key: directory.EnginePrefix + id, Value: fmt.Appendf(nil, `{"id":%q,"incarnation":"1","url":"http://h:1","role":"prefill","model":"m"}`, id), Revision: 1}
		f.take(directory.Event{Kind: directory.Put, Record: stored})
		return stored
	}
	first := put(0)
	for i := range maxEngines {
		put(i + 1)
	}
	if n := len(r.all()); n != maxEngines {
		t.Errorf("%d engines are known, the limit is %d", n, maxEngines)
	}
	f.take(directory.Event{Kind: directory.Delete, Record: first})
	put(maxEngines + 7)
	if r.get(fmt.Sprintf("e%d@1", maxEngines+7)) == nil {
		t.Error("an engine that has gone is in the way of one that comes")
	}
}
