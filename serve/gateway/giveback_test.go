package gateway

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/member/trust"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

// A decode engine that refuses a request has not looked at its ticket: it is given
// back at once, and the prefill engine keeps no blocks in vain.
func TestTicketOfARefusedRequestIsGivenBack(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	c.decode[0].set(habits{status: 400, fault: "no"})
	r := c.post(openai.PathCompletions, completion(longPrompt, ""))
	returned := func() []string { return c.prefill[0].shared.givenBack() }
	c.until("it is given back", func() bool { return len(returned()) == 1 })
	if r.status != 400 || !strings.HasPrefix(returned()[0], "ticket of p0 for ") {
		t.Errorf("%d, given back: %q", r.status, returned())
	}
}

// So is a promise: what it is of may be offered at any moment.
func TestPromiseOfARefusedRequestIsGivenBack(t *testing.T) {
	c := newCell(t, 1, 1, promising).atHome()
	c.prefill[0].set(habits{slowPrefill: 50 * time.Millisecond})
	c.decode[0].set(habits{status: 400, fault: "no"})
	r := c.post(openai.PathCompletions, completion(longPrompt, ""))
	returned := func() []string { return c.prefill[0].shared.givenBack() }
	c.until("it is given back", func() bool { return len(returned()) == 1 })
	if promise, err := trust.OpenPromise([]byte(returned()[0]), c.decode[0].key); r.status != 400 || err != nil || promise.Home != "p0" {
		t.Errorf("%d, given back: %q, %v", r.status, returned(), err)
	}
}

// A ticket that an engine used is not given back.
func TestUsedTicketIsNotGivenBack(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	c.post(openai.PathCompletions, completion(longPrompt, "")).whole(t, longPrompt, 5, 12)
	c.close()
	if returned := c.prefill[0].shared.givenBack(); len(returned) > 0 {
		t.Errorf("given back: %q", returned)
	}
}

// Who is busy or dead has no ear for a ticket either: one that did not fail the
// request gets it, if there is one.
func TestTicketIsGivenBackElsewhere(t *testing.T) {
	c := newCell(t, 0, 2, nil)
	c.until("both are there", func() bool {
		return !slices.ContainsFunc(c.roster.All(), func(e *roster.Engine) bool { return !e.About.Load().Asked })
	})
	var avoid []string
	for i, want := range []string{"d1", "d0"} {
		failed := c.roster.All()[i]
		avoid = append(avoid, failed.Key)
		ticket := base64.StdEncoding.EncodeToString([]byte(want))
		c.giveBack(&lifecycle.Life{Request: &request.Request{Model: "m"}, Record: &ledger.Record{}}, lifecycle.GiveBack{Params: []byte(`{"meridian_ticket":"` + ticket + `"}`), Avoid: avoid, Last: c.roster.All()[0].Key})
		stub := c.decode[1-i]
		c.until("it is given back to "+want, func() bool { return len(stub.seen()) == 1 })
	}
}

// Nor is one given back whose answer has begun when the client leaves.
func TestTicketOfABegunAnswerIsNotGivenBack(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	conn := c.dial(`{"model":"m","prompt":"` + longPrompt + `","max_tokens":10000000,"stream":true}`)
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	c.until("the engine is told", func() bool { return c.decode[0].canceled.Load() == 1 })
	c.close()
	if returned := c.prefill[0].shared.givenBack(); len(returned) > 0 {
		t.Errorf("given back: %q", returned)
	}
}
