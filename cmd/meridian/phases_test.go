package main

import (
	"strings"
	"testing"

	"meridian/serve/governing"
)

// People see each request with its budget, and why; what an engine wrote cannot drive
// their terminal.
func TestPrintPhases(t *testing.T) {
	last, mean := 0.25, 1.5
	agents := []governedAgent{
		{Agent: "a", Engines: []governing.Engine{{
			Name: "e", Model: "m\x1b[2J", Policy: "pascal", Running: 1, Waiting: 1, Steps: 9, Contradictions: 2, Contradiction: "governor: contradiction: x",
			Requests: []governing.Request{
				{Sequence: 7, ID: "chat-1", Phase: "think", State: "running", Prompt: 12, Think: 30, Cap: 64, Entropy: &last, Mean: &mean, Decided: "force", Reason: "hard_cap", DecidedSeconds: 0.5, AgeSeconds: 2},
				{Sequence: 8, Phase: "output", State: "paused", Output: 4},
			},
		}}},
		{Agent: "b", Problem: "does not answer"},
	}
	var out strings.Builder
	if err := printPhases(&out, agents); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"e of agent a: model m\ufffd[2J, policy pascal, 1 running, 1 waiting, 9 steps, ends no thoughts",
		"  2 facts did not fit, the last: governor: contradiction: x",
		"  REQUEST  PHASE   STATE    AGE  PROMPT  THINK  CAP  OUTPUT  ENTROPY  MEAN  DECIDED          WHY",
		"  chat-1   think   running  2s   12      30     64   0       0.25     1.50  force 500ms ago  hard_cap",
		"  #8       output  paused   0s   0       0      –    4       –        –     run              ",
		"b: does not answer", "",
	}, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := printPhases(&out, []governedAgent{{Agent: "a"}}); err != nil || !strings.HasPrefix(out.String(), "no engine is governed") {
		t.Errorf("%v: %s", err, out.String())
	}
}
