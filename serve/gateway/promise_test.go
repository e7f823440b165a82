package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// A decode engine is asked while the prefill engine computes, where that does
// not take long and both have agents.
func TestDecodeIsPromisedTheCache(t *testing.T) {
	const prefill = standstill
	for name, c := range map[string]struct {
		limit    int
		homes    bool
		promised bool
	}{
		"short":          {limit: 4096, homes: true, promised: true},
		"long":           {limit: len(longPrompt)/4 - 1, homes: true},
		"turned off":     {homes: true},
		"without agents": {limit: 4096},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cell := newCell(t, 1, 1, func(o *Options) { o.PromiseTokens = c.limit })
			if c.homes {
				cell.atHome()
			}
			cell.prefill[0].set(habits{slowPrefill: prefill})
			r := cell.post(openai.PathCompletions, completion(longPrompt, `,"stream":true`))
			r.whole(t, longPrompt, 5, 12)
			record := cell.record(r)
			if legsOf(record) != "prefill p0, decode d0" || record.Legs[1].KV != openai.KVHandoff || cell.Metrics().FellBack != 0 {
				t.Fatalf("got %s", record)
			}
			if early := record.Legs[1].StartMs < lifecycle.Milliseconds(span(prefill)); early != c.promised {
				t.Errorf("decode was asked at once: %v\n%s", early, record)
			}
			if record.Latency.PrefillMs < lifecycle.Milliseconds(span(prefill)) {
				t.Errorf("prefill is said to take %g ms", record.Latency.PrefillMs)
			}
		})
	}
}

// falling panics where a prefill leg would be sent.
type falling struct {
	http.RoundTripper
	prefill string
}

func (f falling) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && "http://"+r.URL.Host == f.prefill {
		panic("a fault of ours")
	}
	return f.RoundTripper.RoundTrip(r)
}

// A panic in a leg that was promised ends its request, and no other.
func TestAPanicEndsOneRequest(t *testing.T) {
	for name, change := range map[string]func(*Options){"promised": promising, "awaited": nil} {
		t.Run(name, func(t *testing.T) {
			cell := newCell(t, 1, 1, change).atHome()
			cell.Gateway.upstream.HTTP = &http.Client{Transport: falling{cell.Gateway.upstream.HTTP.Transport, cell.prefill[0].server.URL}}
			cell.roster.All() // requests take the roster's lock, and see it
			if r := cell.post(openai.PathCompletions, completion(longPrompt, "")); r.err == nil {
				t.Errorf("got %d %s", r.status, r.body)
			}
			cell.post(openai.PathCompletions, completion("short", "")).whole(t, "short", 5, 12)
			cell.until("nothing runs", func() bool { return cell.Metrics().Running == 0 })
		})
	}
}

// What waits at a prefill engine counts as what is to be waited for.
func TestNothingIsPromisedOfABusyEngine(t *testing.T) {
	cell := newCell(t, 1, 1, promising).atHome()
	for _, e := range cell.roster.All() {
		e.Waiting.Add(4096)
	}
	cell.prefill[0].set(habits{slowPrefill: 50 * time.Millisecond})
	r := cell.post(openai.PathCompletions, completion(longPrompt, ""))
	r.whole(t, longPrompt, 5, 12)
	if record := cell.record(r); record.Legs[1].StartMs < 50 {
		t.Errorf("got %s", record)
	}
}

// A prefill engine whose cache was used need not answer.
func TestAnswerDoesNotWaitForThePrefillEngine(t *testing.T) {
	cell := newCell(t, 1, 1, promising).atHome()
	cell.prefill[0].set(habits{offersMute: true})
	began := time.Now()
	r := cell.post(openai.PathCompletions, completion(longPrompt, `,"stream":true`))
	r.whole(t, longPrompt, 5, 12)
	record := cell.record(r)
	if took := time.Since(began); took > lastWord+time.Minute {
		t.Errorf("it took %v", took)
	}
	if legsOf(record) != "prefill p0 failed, decode d0" || record.Legs[0].Problem != "its cache was used before it answered" || record.Legs[1].KV != openai.KVHandoff {
		t.Errorf("got %s", record)
	}
}

func TestLeavingEndsBothLegs(t *testing.T) {
	cell := newCell(t, 1, 1, promising).atHome()
	cell.prefill[0].set(habits{deaf: true})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+cell.Addr()+openai.PathCompletions, strings.NewReader(completion(longPrompt, "")))
		cell.do(request)
	}()
	cell.until("both work", func() bool { return len(cell.prefill[0].seen()) == 1 && len(cell.decode[0].seen()) == 1 })
	leave()
	cell.until("both are told", func() bool { return cell.prefill[0].canceled.Load() == 1 && cell.decode[0].canceled.Load() == 1 })
	<-left
	cell.until("it has left", func() bool { return cell.Metrics().Running == 0 })
}

// What both engines refuse the client is told once.
func TestBothLegsAreRefused(t *testing.T) {
	cell := newCell(t, 2, 2, promising).atHome()
	for _, s := range append(cell.prefill, cell.decode...) {
		s.set(habits{status: 400, fault: "the prompt is too long"})
	}
	r := cell.post(openai.PathCompletions, completion(longPrompt, ""))
	_, _, problem, _ := r.text(t)
	if r.status != 400 || problem != "the prompt is too long" || len(cell.record(r).Legs) != 2 {
		t.Errorf("%d %q\n%s", r.status, problem, cell.record(r))
	}
}

// An engine that takes no promises gets the ticket when there is one, also when it
// is the second that is asked.
func TestTicketForAnEngineThatTakesNoPromises(t *testing.T) {
	for name, c := range map[string]struct {
		prefill habits
		legs    string
		kv      string
	}{
		"offered":         {habits{slowPrefill: 50 * time.Millisecond}, "prefill p0, decode d0 failed, decode d1", openai.KVHandoff},
		"nothing offered": {habits{noTicket: true, slowPrefill: 50 * time.Millisecond}, "prefill p0, decode d0 failed, decode d1", openai.KVLocal},
	} {
		t.Run(name, func(t *testing.T) {
			cell := newCell(t, 1, 2, promising).atHome()
			cell.prefer("p0", "d0")
			for _, e := range cell.roster.All() {
				if e.Name() == "d1" {
					e.Home.Store(nil)
				}
			}
			cell.prefill[0].set(c.prefill)
			cell.decode[0].set(habits{status: 429})
			r := cell.post(openai.PathCompletions, completion(longPrompt, `,"stream":true`))
			r.whole(t, longPrompt, 5, 12)
			if record := cell.record(r); legsOf(record) != c.legs || record.Legs[2].KV != c.kv {
				t.Errorf("got %s", record)
			}
		})
	}
}

// Whichever comes first counts: the failure of a prefill leg or the use of its
// cache.
func TestUseAndLossExcludeEachOther(t *testing.T) {
	for range 1000 {
		x := &exchange{life: lifecycle.New(lifecycle.Options{Record: &ledger.Record{}})}
		x.life.Request = &request.Request{}
		x.life.AskDecode(x.life.Promise(kv.ID{1}, []byte("{}")), lifecycle.Engine{Home: true})
		use := func() bool {
			x.promising.Lock()
			defer x.promising.Unlock()
			return x.life.Arrived(1, x.promised.beside())
		}
		run := &prefillRun{}
		run.alive, run.lose = context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.promiseLost(run)
		}()
		used := use()
		<-done
		if lost := run.alive.Err() != nil; used == lost || use() != used {
			t.Fatalf("used %v, given up %v", used, lost)
		}
	}
}
