//go:build real

package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/run/cell"
)

// gatewayCounts are what the gateway's metrics say now; nothing while it does not answer.
func (r *running) gatewayCounts() counts {
	found := counts{}
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(r.Record().Admin + "/metrics")
	if err != nil {
		return found
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return found
	}
	for _, m := range series.FindAllStringSubmatch(string(text), -1) {
		var value float64
		if _, err := fmt.Sscan(m[2], &value); err == nil {
			found[m[1]] = value
		}
	}
	return found
}

const movesTotal = "meridian_gateway_moves_total"

// moveAll asks all requests that run to leave their engines, and returns for where they were to
// go.
func (r *running) moveAll(ctx context.Context) (to []string) {
	client := http.Client{Timeout: 5 * time.Second}
	do := func(method, path, body string, into any) bool {
		request, err := http.NewRequestWithContext(ctx, method, r.Record().Admin+path, strings.NewReader(body))
		if err != nil {
			return false
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(request)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode < 300 && json.NewDecoder(answer.Body).Decode(into) == nil
	}
	var now struct{ Running []struct{ ID string } }
	if !do(http.MethodGet, "/debug/requests", "", &now) {
		return nil
	}
	for _, q := range now.Running {
		var order struct{ To string }
		if do(http.MethodPost, "/requests/"+q.ID+"/move", "{}", &order) {
			to = append(to, order.To)
		}
	}
	return to
}

// longAnswers are questions whose answers are long enough to move in their middle.
func longAnswers(count int, seed uint64) []Question {
	random := rand.New(rand.NewPCG(seed, 32))
	all := Questions(model, count, 300, 1, seed)
	for i := range all {
		tokens := 300 + random.IntN(500)
		all[i].Request.MaxTokens, all[i].Request.IgnoreEOS = &tokens, true
	}
	return all
}

// Requests move from engine to engine without a pause, while an engine that some are on their way
// to, its agent, or an engine that drains ends: every token of every stream is what an engine
// alone says, no request fails, and nothing is kept in the end.
func TestRealMovesAreBroken(t *testing.T) {
	spec := cell.DefaultSpec()
	spec.Model, spec.Reasoning, spec.DirectTokens = model, false, 8
	spec.Workers = cell.Workers{Prefill: 1, Decode: 3}
	r := startWith(t, spec, longAnswers(24, 32))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	crowd := Crowd{Client: r.client, Questions: r.questions, Clients: 12, Ask: patience, Seed: rand.Uint64()}
	done := make(chan *Tally, 1)
	go func() { done <- crowd.Run(ctx) }()
	for _, breaks := range []func(to string){
		func(to string) { r.kill(t, to) },
		func(string) { r.kill(t, "agent-decode") },
		func(to string) { r.kill(t, to) },
	} {
		before := r.gatewayCounts().sum(movesTotal, `reason="operator"`)
		var last []string
		r.await(t, func(ctx context.Context) string {
			last = r.moveAll(ctx)
			n := r.gatewayCounts().sum(movesTotal, `reason="operator"`) - before
			if n < 20 || len(last) < 3 {
				return fmt.Sprintf("%v requests have moved, and %d leave now", n, len(last))
			}
			return ""
		})
		if t.Failed() {
			return
		}
		breaks(last[len(last)-1])
		r.moveAll(t.Context())
		r.await(t, r.lacking)
	}
	// A request that was asked to leave does not leave because its engine drains, and none leaves
	// more than four times: what runs from here on is not asked.
	drained := func() float64 { return r.gatewayCounts().sum(movesTotal, `reason="drain"`, `outcome="moved"`) }
	for round := 0; round < 9 && drained() < 3 && !t.Failed(); round++ {
		r.drain(t, fmt.Sprint("decode-", round%3))
	}
	counted := r.gatewayCounts()
	cancel()
	tally := <-done
	t.Log(tally)
	if tally.WrongCount > 0 || tally.Failures() > 0 || tally.Right == 0 {
		t.Errorf("not all answers are right, or there are none: %v", tally)
	}
	moved := counted.sum(movesTotal, `reason="operator"`, `outcome="moved"`)
	for _, outcome := range []string{"moved", "recomputed", "stayed", "returned", "lost"} {
		t.Logf("%s: %v", outcome, counted.sum(movesTotal, fmt.Sprintf("outcome=%q", outcome)))
	}
	if n := drained(); n < 3 || moved == 0 {
		t.Errorf("%v requests moved as engines drained, %v as they were asked to: the test tests too little", n, moved)
	}
	r.settled(t)
}

// drain ends a part's process as an orderly restart would, and returns when it is back.
func (r *running) drain(t *testing.T, name string) {
	part := r.Record().Part(name)
	if part == nil || part.Process == nil {
		t.Errorf("%s was not there to be told", name)
		return
	}
	pid := part.Process.PID
	t.Logf("SIGTERM to %s (%d)", name, pid)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Error(err)
		return
	}
	r.await(t, func(ctx context.Context) string {
		if now := r.Record().Part(name); now != nil && now.Process != nil && now.Process.PID == pid {
			return name + " drains"
		}
		return r.lacking(ctx)
	})
}
