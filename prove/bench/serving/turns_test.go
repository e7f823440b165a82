package serving

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"meridian/prove/bench"
)

func TestTurnsOptions(t *testing.T) {
	good := TurnsOptions{Model: "tiny", Question: 64, Thought: 32, Answers: []int{64}, Rounds: 1}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*TurnsOptions){
		"no rounds": func(o *TurnsOptions) { o.Rounds = 0 }, "no answers": func(o *TurnsOptions) { o.Answers = nil }, "no thought": func(o *TurnsOptions) { o.Thought = 0 },
		"too long": func(o *TurnsOptions) { o.Answers = []int{maxTurnTokens + 1} }, "no question": func(o *TurnsOptions) { o.Question = -1 },
	} {
		o := good
		change(&o)
		if err := o.validate(); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTurnsRow(t *testing.T) {
	turn := func(ms, cached int) secondTurn {
		return secondTurn{first: time.Duration(ms) * time.Millisecond, prompt: 900, cached: cached}
	}
	row := turnsRow(64, []secondTurn{turn(10, 256), turn(20, 256), turn(40, 320)}, []secondTurn{turn(5, 832), turn(5, 832), turn(20, 832)})
	if row.Ratio.Median != 0.5 || row.Cold.Median != 20 || row.Warm.Median != 5 || row.Gained != 576 || row.Prompt != 900 {
		t.Errorf("got %+v", row)
	}
	var text strings.Builder
	report := &TurnsReport{Rows: []TurnsRow{row}, options: TurnsOptions{Rounds: 3}}
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "64      900     256             832") {
		t.Errorf("%v: %s", err, text.String())
	}
}

func TestWords(t *testing.T) {
	for n := 1; n < 40; n++ {
		if text := words(rand.New(rand.NewPCG(1, uint64(n))), n); len(text) != n {
			t.Errorf("%d letters asked for, %q", n, text)
		}
	}
}

func TestReadWarmed(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# HELP meridian_gateway_warm_total x\nmeridian_gateway_warm_total{end=\"warmed\"} 3\nmeridian_gateway_warm_total{end=\"busy\"} 1\nmeridian_gateway_warm_total{end=\"late\"} 2\nother 9\n"))
	}))
	defer page.Close()
	warmed, dropped, err := readWarmed(t.Context(), http.DefaultClient, page.URL)
	if warmed != 3 || dropped != 3 || err != nil {
		t.Errorf("%d warmed, %d dropped, %v", warmed, dropped, err)
	}
}
