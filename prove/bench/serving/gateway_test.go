package serving

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/prove/bench"
)

func TestGatewayOptions(t *testing.T) {
	good := GatewayOptions{Clients: []int{1}, Seconds: 1, Rounds: 1}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*GatewayOptions){
		"no rounds": func(o *GatewayOptions) { o.Rounds = 0 }, "no time": func(o *GatewayOptions) { o.Seconds = 0 },
		"no clients": func(o *GatewayOptions) { o.Clients = nil }, "too many": func(o *GatewayOptions) { o.Clients = []int{5000} },
	} {
		o := good
		change(&o)
		if err := o.validate(); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Clients hear what the stub says, of either kind, and count only whole
// answers.
func TestStubEngineIsHeard(t *testing.T) {
	defer goleak.VerifyNone(t)
	engine, err := openStubEngine()
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range stubAnswers {
		got, err := askAll(t.Context(), engine.address(), answer, 3, 300*time.Millisecond)
		if err != nil || len(got.latencies) < 3 {
			t.Errorf("%s: %d answers, %v", answer.name, len(got.latencies), err)
		}
	}
	if err := engine.close(); err != nil {
		t.Error(err)
	}
	if _, err := askAll(t.Context(), engine.address(), stubAnswers[0], 1, 10*time.Millisecond); err == nil {
		t.Error("no gateway is there, and the measurement did not notice")
	}
}

func TestHearAnswerRefuses(t *testing.T) {
	for name, response := range map[string]string{
		"an error":        "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
		"a cut body":      "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
		"no HTTP":         "hello\n",
		"a cut stream":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nda",
		"an open stream":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"odd chunk sizes": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		if hearAnswer(bufio.NewReader(strings.NewReader(response))) == nil {
			t.Errorf("%s was taken for an answer", name)
		}
	}
	for _, a := range stubAnswers {
		if err := hearAnswer(bufio.NewReader(bytes.NewReader(bytes.Join(a.pieces, nil)))); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}

func TestGatewayRow(t *testing.T) {
	ms := time.Millisecond
	direct := []heard{{[]time.Duration{1 * ms, 1 * ms}, time.Second}, {[]time.Duration{3 * ms}, time.Second}, {[]time.Duration{2 * ms}, time.Second}}
	through := []heard{{[]time.Duration{2 * ms}, time.Second}, {[]time.Duration{4 * ms}, time.Second}, {[]time.Duration{4 * ms}, time.Second}}
	row := gatewayRow(gatewayLoad{answer: stubAnswers[0], clients: 4}, direct, through)
	if row.AddedP50 != 1000 || row.P50 != 4000 || row.DirectP50 != 2000 || row.DirectPerSecond.Max != 2 {
		t.Errorf("got %+v", row)
	}
}
