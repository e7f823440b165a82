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
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
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
		r := roster.New(roster.Options{Place: usualPlace, Logger: discard})
		stored := directory.Record{Key: directory.EnginePrefix + "e", Value: value, Revision: 1}
		events := make(chan directory.Event)
		over := make(chan struct{})
		follow := r.FollowDirectory(t.Context(), events)
		go func() {
			defer close(over)
			follow()
		}()
		events <- directory.Event{Kind: directory.Resync, Records: []directory.Record{stored}}
		events <- directory.Event{Kind: directory.Put, Record: stored}
		events <- directory.Event{} // what came before it is taken in
		a, fault := request.Parse("/v1/completions", []byte(`{"model":"m","prompt":"`+strings.Repeat("p", 600)+`"}`))
		if fault != nil {
			t.Fatal(fault)
		}
		for _, e := range r.All() {
			r.Answered(e, &roster.About{ID: e.Name(), Models: []string{"m"}, Asked: true})
			r.Note(e.Key, a.Prefix, time.Now())
			l := upstream.Legs{Request: a, Key: &key}
			l.Prefill(kv.ID{1}, trust.Trace{}, e.About.Load(), true)
			if home := e.Home.Load(); home != nil {
				l.Promise(kv.ID{1}, home)
			}
		}
		r.Candidates(request.Wanted{Request: a}, time.Now())
		events <- directory.Event{Kind: directory.Delete, Record: stored}
		close(events)
		<-over
	})
}
