//go:build real

package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"meridian/engine/token"
	"meridian/run/cell"
)

// governedSpec is engines that think, with blocks for a few of those who ask, where the
// store and the governors of the decode workers are in different processes:
//
//	agent-decode:  governors of decode-0 and decode-1, no objects
//	agent-prefill: the store's memory and master, governor of prefill-0
func governedSpec(t *testing.T) cell.Spec {
	t.Helper()
	markers := filepath.Join(t.TempDir(), "meridian.toml")
	table := fmt.Sprintf("[model.%s]\nthink_start_token_ids = [%d]\nthink_end_token_ids = [%d]\n", model, token.ThinkStart, token.ThinkEnd)
	if err := os.WriteFile(markers, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := cell.DefaultSpec()
	spec.Model, spec.DirectTokens, spec.Blocks = model, 8, 160
	spec.Workers = cell.Workers{Prefill: 1, Decode: 2}
	spec.Decode.BlockTokens = 16
	// Thoughts are ended by their own caps alone: what entropies say depends on how many were
	// measured while there was a governor.
	// PASCAL's policy lets thoughts go before answers, whose blocks are always copied out: of
	// so small a model others would rather compute a thought anew.
	common := []string{"MERIDIAN_SCHEDULER_POLICY=pascal", "MERIDIAN_CONFIG=" + markers, "MERIDIAN_STORE_ENABLED=true", "MERIDIAN_SCHEDULER_MIN_THINK_TOKENS=2000", "MERIDIAN_DISAGG_OFFLOAD_THRESHOLD_BLOCKS=2"}
	spec.AgentEnvironment = map[string][]string{
		string(cell.Prefill): append(common[:len(common):len(common)], "MERIDIAN_STORE_BYTES=67108864"),
		string(cell.Decode):  append(common[:len(common):len(common)], "MERIDIAN_STORE_BYTES=0", "MERIDIAN_STORE_MASTER=false"),
	}
	return spec
}

// thinkers are questions that are thought about for long, every other one until its cap.
func thinkers(count int, seed uint64) []Question {
	random := rand.New(rand.NewPCG(seed, 18))
	all := Questions(model, count, 300, 1, seed)
	for i := range all {
		think, answer := 250+random.IntN(350), 100+random.IntN(200)
		r := &all[i].Request
		if r.ThinkTokens, r.IgnoreEOS = &think, true; i%2 == 0 {
			most := 200 + random.IntN(think-200)
			r.MaxThinkTokens = &most
		}
		total := think + answer
		r.MaxTokens = &total
	}
	return all
}

// governedRequest is what is looked at of a request in `meridian phases --json`.
type governedRequest struct {
	Phase   string `json:"phase"`
	State   string `json:"state"`
	Think   int    `json:"think_tokens"`
	Resumed bool   `json:"resumed"`
}

// governed are the requests of decode workers that have a governor now.
func (r *running) governed(t *testing.T) (found []governedRequest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program(t), "phases", "--json", "--agent", string(cell.Decode), "--state", r.StateDir()).Output()
	if err != nil { // the agent is away
		return nil
	}
	var told struct {
		Agents []struct {
			Engines []struct {
				Requests []governedRequest `json:"requests"`
			} `json:"engines"`
		} `json:"agents"`
	}
	if err := json.Unmarshal(out, &told); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, a := range told.Agents {
		for _, e := range a.Engines {
			found = append(found, e.Requests...)
		}
	}
	return found
}

// Agents with the governors and with the store are killed in the middle of governed
// thoughts, under pressure: all that is said is what an engine alone says, whose thoughts
// are capped in the same places. No request fails. A governor that comes back finds
// thoughts where they are, and nothing is kept in the end.
func TestRealGovernorsAndStoreAreKilled(t *testing.T) {
	r := startWith(t, governedSpec(t), thinkers(16, 18))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	crowd := Crowd{Client: r.client, Questions: r.questions, Clients: 12, Ask: patience, Seed: rand.Uint64()}
	done := make(chan *Tally, 1)
	go func() { done <- crowd.Run(ctx) }()
	var before governedCounts
	resumed := 0
	for _, round := range []struct {
		victims []string
		swapped bool // while blocks of a request are in the store
	}{
		{victims: []string{"agent-decode"}},
		{victims: []string{"agent-prefill"}, swapped: true},
		{victims: []string{"agent-decode"}, swapped: true},
		{victims: []string{"agent-prefill", "agent-decode"}},
	} {
		var now []governedRequest
		thinking := 0
		r.await(t, func(context.Context) string {
			now, thinking = r.governed(t), 0
			n, swapped := r.decided(t), false
			for _, q := range now {
				if q.Phase == "think" && q.Think > 0 {
					thinking++
				}
				swapped = swapped || q.State == "away" || q.State == "recalling"
			}
			switch {
			case thinking < 3 || round.swapped && !swapped:
				return fmt.Sprintf("these requests are governed: %+v", now)
			case n.CopiedOut == before.CopiedOut || n.Preempted+n.Stopped == before.Preempted+before.Stopped || round.swapped && n.Recalled == 0:
				return fmt.Sprintf("there is too little pressure: %+v", n)
			}
			return ""
		})
		if t.Failed() {
			return
		}
		for _, q := range now {
			if q.Resumed {
				resumed++
			}
		}
		before = r.decided(t)
		for _, v := range round.victims {
			if !r.kill(t, v) {
				t.Errorf("%s was not there to be killed", v)
			}
		}
		t.Logf("in the middle of %d governed thoughts and %d answers; %+v", thinking, len(now)-thinking, before)
	}
	r.await(t, func(context.Context) string {
		if len(r.governed(t)) == 0 {
			return "no request is governed again"
		}
		return ""
	})
	cancel()
	tally := <-done
	t.Log(tally)
	if tally.WrongCount > 0 || tally.Failures() > 0 || tally.Right == 0 {
		t.Errorf("not all answers are right, or there are none: %v", tally)
	}
	n := r.decided(t)
	t.Logf("%d thoughts were found by a new governor; %+v", resumed, n)
	if resumed == 0 || n.Forced == 0 {
		t.Errorf("%d thoughts were found by a new governor, %d ended at their caps: the test tests too little", resumed, n.Forced)
	}
	r.settled(t)
	if after := r.ask(t, 6, 3*time.Second); after.Failures() > 0 {
		t.Errorf("%d requests failed after everything had come back", after.Failures())
	}
	r.settled(t)
}

// governedCounts is what decode workers have done for their governors, all together.
type governedCounts struct{ Told, Late, Forced, Recalled, Stopped, Preempted, CopiedOut, FailedOpen uint64 }

func (r *running) decided(t *testing.T) (all governedCounts) {
	t.Helper()
	for _, p := range r.Record().Parts {
		if p.Kind != cell.Decode {
			continue
		}
		s, err := readEngine(p.URL)
		if err != nil {
			t.Fatal(err)
		}
		c := &s.Counters
		all.Told, all.Late, all.Forced, all.Recalled = all.Told+c.Told, all.Late+c.Late, all.Forced+c.Forced, all.Recalled+c.Recalled
		all.Stopped, all.Preempted, all.CopiedOut, all.FailedOpen = all.Stopped+c.Stopped, all.Preempted+c.Preempted, all.CopiedOut+c.CopiedOut, all.FailedOpen+c.FailedOpen
	}
	return all
}
