package gateway

import (
	"strings"
	"testing"
	"time"

	"meridian/openai"
	"meridian/trust"
)

// A decode engine that refuses a request has not looked at its ticket: it is given
// back at once, and the prefill engine keeps no blocks for nobody.
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
