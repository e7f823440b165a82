//go:build real

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"meridian/internal/require"
)

// seenSpan is a span as the OpenTelemetry Collector wrote it down.
type seenSpan struct {
	id, parent, name string
	instance         string // the process that sent it
}

var spanFields = regexp.MustCompile(`(?m)^ +(?:(Trace ID|Parent ID|ID|Name) +: (.*)|-> service\.(instance\.id): Str\((.*)\))$`)

// spansOf reads what its debug exporter wrote about one trace.
func spansOf(text, trace string) (all []seenSpan) {
	var instance, of string
	var s seenSpan
	for _, m := range spanFields.FindAllStringSubmatch(text, -1) {
		switch m[1] + m[3] {
		case "instance.id":
			instance = m[4]
		case "Trace ID":
			of, s = m[2], seenSpan{instance: instance}
		case "Parent ID":
			s.parent = m[2]
		case "ID":
			s.id = m[2]
		case "Name": // the last of the four
			if s.name = m[2]; of == trace {
				all = append(all, s)
			}
		}
	}
	return all
}

// oneTree tells what is missing until all spans hang below one root, and the root below parent.
func oneTree(spans []seenSpan, parent string) string {
	known := make(map[string]bool)
	for _, s := range spans {
		known[s.id] = true
	}
	roots := slices.DeleteFunc(slices.Clone(spans), func(s seenSpan) bool { return known[s.parent] })
	if len(roots) != 1 || roots[0].name != "meridian.request" || roots[0].parent != parent {
		return fmt.Sprintf("roots are %+v, want one meridian.request below %s", roots, parent)
	}
	for name, want := range map[string]struct {
		by    string
		least int
	}{
		"meridian.request": {"gateway", 1}, "meridian.prefill": {"gateway", 1}, "meridian.decode": {"gateway", 1},
		"meridian.offer": {"prefill", 1}, "meridian.handoff": {"decode", 1}, "meridian.handoff.data": {"decode", 1},
		"meridian.flow": {"decode", 8}, // from two ranks of prefill to eight of decode
	} {
		got := 0
		for _, s := range spans {
			if s.name == name && strings.HasPrefix(s.instance, want.by) {
				got++
			}
		}
		if got < want.least {
			return fmt.Sprintf("%d spans %s of %s, want %d at least", got, name, want.by, want.least)
		}
	}
	return ""
}

// One request through a cell is one trace to the OpenTelemetry Collector, which knows
// nothing of us: below the client's span, across gateway, prefill, hand-off and decode.
func TestRealCollector(t *testing.T) {
	collector, err := filepath.Abs("../../.peers/otelcol/otelcol")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(collector); err != nil {
		require.Skip(t, "otelcol", "no program in .peers/otelcol; run make peers")
	}
	dir := t.TempDir()
	configuration, written := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "spans")
	address := fmt.Sprintf("127.0.0.1:%d", freePort())
	if err := os.WriteFile(configuration, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {debug: {verbosity: detailed, use_internal_logger: false, output_paths: [%q]}}
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [debug]}
    metrics: {receivers: [otlp], exporters: [debug]}
`, address, written), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.environment = []string{
		"MERIDIAN_TELEMETRY_OTLP_ENABLED=true", "MERIDIAN_TELEMETRY_OTLP_ENDPOINT=http://" + address,
		"MERIDIAN_TELEMETRY_TRACE_FRACTION=0", "OTEL_BSP_SCHEDULE_DELAY=100",
	}
	said := new(screen)
	peer := exec.Command(collector, "--config", configuration)
	peer.Stdout, peer.Stderr, peer.SysProcAttr = said, said, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	s.until("the collector is ready", func() bool { return strings.Contains(said.String(), "Everything is ready") }, said)
	up, _ := s.up()

	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	body := fmt.Sprintf(`{"model": "tiny", "prompt": %q, "max_tokens": 12, "temperature": 0}`, strings.Repeat("It was the best of times, ", 20))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.record().Gateway+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	lacking := new(screen)
	s.until("one trace", func() bool {
		text, _ := os.ReadFile(written) // there is none until something came
		spans := spansOf(string(text), trace)
		missing := oneTree(spans, parent)
		lacking.text = *bytes.NewBufferString(fmt.Sprintf("%s\n%+v\n%s", missing, spans, said))
		return missing == ""
	}, lacking)
	for _, p := range []*exec.Cmd{up, peer} { // the last spans go out when the cell ends
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", p.Path, err, said)
		}
	}
}
