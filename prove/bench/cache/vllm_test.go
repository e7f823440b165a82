package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func milliseconds(all ...int) (times []time.Duration) {
	for _, ms := range all {
		times = append(times, time.Duration(ms)*time.Millisecond)
	}
	return times
}

func TestVLLMRows(t *testing.T) {
	v := new(VLLMReport)
	v.add("meridian", &length{
		tokens: 512, others: []float64{0.5, 1.5},
		missed: []missedRound{
			{milliseconds(900), milliseconds(1)}, // which warmed up
			{milliseconds(40, 20, 30), milliseconds(41, 22, 33)},
			{milliseconds(60), milliseconds(66)},
			{milliseconds(10), milliseconds(10)},
		},
		found: []foundRound{
			{computed: milliseconds(1), own: milliseconds(1), found: milliseconds(900), lost: 9},
			{computed: milliseconds(40, 20, 30), own: milliseconds(4, 5, 6), found: milliseconds(9, 15, 12), lost: 1},
			{lost: 4}, // a round in which nothing was found has no ratio
			{computed: milliseconds(60), own: milliseconds(7), found: milliseconds(12)},
			{computed: milliseconds(10), own: milliseconds(8), found: milliseconds(30)},
		},
	})
	want := VLLMRow{
		Tokens: 512, Connector: "meridian", Computed: 30, Own: 6, Found: 12, FoundP99: 30,
		OfComputed: 0.4, Missed: 33, Added: 2, OfMiss: 1.1, Lost: 5, Others: 1.5,
	}
	if got := v.Rows[0]; got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
	v.add("example", &length{tokens: 512, others: []float64{0}, missed: []missedRound{{}, {milliseconds(10), milliseconds(30)}}, found: []foundRound{{}, {lost: 4}}})
	if got, want := v.Rows[1], (VLLMRow{Tokens: 512, Connector: "example", Missed: 30, Added: 20, OfMiss: 3, Lost: 4}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// TestStepsAreComparedRoundByRound: a round that was slow for everybody is none for the
// ratio.
func TestStepsAreComparedRoundByRound(t *testing.T) {
	v := new(VLLMReport)
	v.addSteps("off", "keeps", map[string][]float64{"off": {2, 20, 4}, "keeps": {3, 21, 4}}, 0.5)
	if got, want := v.Steps[0], (StepsRow{"keeps", "off", 4, 4, 1.05, 0.5}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// TestNobodyIsAlwaysFirst: what comes second may find a machine that is warm.
func TestNobodyIsAlwaysFirst(t *testing.T) {
	var order []string
	does := func(name string, err error) func() error {
		return func() error {
			order = append(order, name)
			return err
		}
	}
	wrong := errors.New("wrong")
	for i := range 2 {
		if err := inTurn(i, does("a", nil), does("b", nil)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []error{wrong, nil} {
		if err := inTurn(0, does("c", want), does("d", nil)); !errors.Is(err, want) {
			t.Errorf("%d: %v, not %v", i, err, want)
		}
	}
	if want := []string{"a", "b", "b", "a", "c", "c", "d"}; !slices.Equal(order, want) {
		t.Errorf("%v, not %v", order, want)
	}
}

func TestVLLMIsTold(t *testing.T) {
	r := &Report{VLLM: &VLLMReport{
		VLLM: "0.32.0", BytesPerToken: 2048, Rounds: 5, Requests: 4,
		Rows: []VLLMRow{
			{Tokens: 900, Connector: "example", Computed: 40, Own: 8, Found: 10, FoundP99: 12, OfComputed: 0.25, Missed: 44, Added: 4, OfMiss: 1.1, Lost: 3},
			{Tokens: 900, Connector: "meridian", Missed: 44, Added: 4, OfMiss: 1.1, Lost: 4},
		},
		Steps: []StepsRow{{Server: "meridian-reader", Beside: "plain", P50: 4, Theirs: 5, Ratio: 0.8}},
	}}
	var text, data bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"vLLM 0.32.0 on the CPU", "5 rounds of 4 prompts", "900     example    40.0      8.0  10.0   12.0  0.25  44.0  4.00   1.100  3     0.0", "900     meridian   -         -    -      -     -     44.0  4.00   1.100  4     0.0", "meridian-reader  4.00  plain   5.00  0.800",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &text)
		}
	}
	if err := r.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || back.VLLM == nil || back.VLLM.Rows[0] != r.VLLM.Rows[0] || back.VLLM.Steps[0] != r.VLLM.Steps[0] {
		t.Errorf("%s: %v", &data, err)
	}
}
