package telemetry

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/internal/require"
)

const (
	alertsFile = "../../deploy/prometheus/alerts.yml"
	alertTests = "../../deploy/prometheus/alerts_test.yml"
)

func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func filesLike(t *testing.T, pattern string, least int) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return files
}

var (
	seriesName = regexp.MustCompile(`\b(vllm:)?meridian_[a-z0-9_]+(\{[^}]*\})?`)
	selector   = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)\\?"([^"\\]*)\\?"`)
)

// labelsOfTargets are what service discovery adds to every series.
var labelsOfTargets = []string{"kind", "name", "host", "job", "instance", "le"}

// misnamed is what is wrong with a series as a rule, a dashboard or a page writes it;
// "" where it is one that the code emits.
func misnamed(written string) string {
	name, rest, _ := strings.Cut(written, "{")
	m, known := find(name)
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, is := strings.CutSuffix(name, suffix); is && !known {
			if m, known = find(base); known && m.Type != Histogram {
				return "it is no histogram"
			}
		}
	}
	switch {
	case !known:
		return "it is not in the catalogue"
	case m.Planned:
		return "nothing emits it yet"
	}
	for _, match := range selector.FindAllStringSubmatch(rest, -1) {
		label, values := match[1], strings.Split(match[3], "|")
		i := slices.IndexFunc(m.Labels, func(l Label) bool { return l.Name == label })
		switch {
		case i < 0 && !slices.Contains(labelsOfTargets, label):
			return "it has no label " + label
		case i < 0 || len(m.Labels[i].Values) == 0:
			continue
		}
		for _, value := range values {
			if !slices.Contains(m.Labels[i].Values, value) {
				return label + " is never " + value
			}
		}
	}
	return ""
}

func TestMisnamedSeries(t *testing.T) {
	for written, wrong := range map[string]string{
		`meridian_gateway_requests_total{outcome="failed"}`:               "",
		`meridian_gateway_phase_seconds_bucket{phase="handoff",name="g"}`: "",
		`meridian_gateway_engines{role=~"decode|both",state="up"}`:        "",
		`meridian_gateway_engines{role=~"decode|queen",state="up"}`:       "role is never queen",
		`meridian_gateway_requests_total{shade="failed"}`:                 "it has no label shade",
		`meridian_gateway_requests_bucket`:                                "it is no histogram",
		`meridian_lunch_total`:                                            "it is not in the catalogue",
		`meridian_queue_depth{queue="think"}`:                             "",
		`meridian_vocab_fallback_total`:                                   "nothing emits it yet",
	} {
		if got := misnamed(written); got != wrong {
			t.Errorf("%s: %q, want %q", written, got, wrong)
		}
	}
}

// Rules, dashboards and runbooks are about series that the code emits.
func TestOperatorsFilesNameEmittedSeries(t *testing.T) {
	files := slices.Concat(filesLike(t, "../../deploy/prometheus/*.yml", 3), filesLike(t, "../../deploy/grafana/*.json", 3), filesLike(t, "../../docs/runbooks/*.md", 20))
	for _, file := range files {
		for _, written := range seriesName.FindAllString(textOf(t, file), -1) {
			if strings.HasPrefix(written, "vllm:") { // the connector's, which test_vllm_docs.py holds to its code
				if name, _, _ := strings.Cut(written, "{"); !strings.Contains(textOf(t, "../../docs/vllm.md"), "| `"+name+"` |") {
					t.Errorf("%s: %s is not in docs/vllm.md", file, name)
				}
			} else if wrong := misnamed(written); wrong != "" {
				t.Errorf("%s: %s: %s", file, written, wrong)
			}
		}
	}
}

// Each alert has a runbook that shows its expression and a unit test that sees it fire;
// no runbook is of an alert that is gone.
func TestAlertsHaveRunbooksAndTests(t *testing.T) {
	alerts := regexp.MustCompile(`(?s)- alert: (\w+)\n\s+expr: '(.*?)'\n.*?runbook: (\S+)`).FindAllStringSubmatch(textOf(t, alertsFile), -1)
	if len(alerts) < 20 {
		t.Fatalf("only %d alerts were found", len(alerts))
	}
	tests, index := textOf(t, alertTests), textOf(t, "../../docs/runbooks/README.md")
	runbooks := []string{"README.md"}
	for _, alert := range alerts {
		name, expression, path := alert[1], strings.ReplaceAll(alert[2], "''", "'"), alert[3]
		if path != "docs/runbooks/"+name+".md" {
			t.Errorf("%s: its runbook is %s", name, path)
		}
		runbooks = append(runbooks, name+".md")
		if !strings.Contains(textOf(t, filepath.Join("..", "..", path)), expression) {
			t.Errorf("%s does not show what the alert looks at", path)
		}
		if !strings.Contains(tests, "alertname: "+name+"\n        exp_alerts:\n") || !strings.Contains(tests, "alertname: "+name+"\n        exp_alerts: []\n") {
			t.Errorf("%s has no test that sees it fire, or none that sees it silent", name)
		}
		if !strings.Contains(index, "("+name+".md)") {
			t.Errorf("docs/runbooks/README.md does not list %s", name)
		}
	}
	for _, file := range filesLike(t, "../../docs/runbooks/*.md", 20) {
		if !slices.Contains(runbooks, filepath.Base(file)) {
			t.Errorf("%s is of no alert", file)
		}
	}
}

// What runbooks say to set is in the configuration.
func TestRunbooksNameFieldsThatExist(t *testing.T) {
	var schema struct {
		Sections []struct {
			Name   string
			Fields []struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(textOf(t, "../../python/meridian/schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, section := range schema.Sections {
		for _, field := range section.Fields {
			fields = append(fields, section.Name+"."+field.Name)
		}
	}
	// Not of the configuration: files, and names in Python.
	other := regexp.MustCompile(`\.(toml|yml|md)$|^meridian\.`)
	written := regexp.MustCompile("`([a-z_0-9]+(?:\\.[A-Za-z_0-9]+)+)`")
	found := 0
	for _, file := range filesLike(t, "../../docs/runbooks/*.md", 20) {
		for _, match := range written.FindAllStringSubmatch(textOf(t, file), -1) {
			if found++; !other.MatchString(match[1]) && !slices.Contains(fields, match[1]) {
				t.Errorf("%s: there is no field %s in the configuration", file, match[1])
			}
		}
	}
	if found < 20 || !slices.Contains(fields, "gateway.max_waiting") {
		t.Errorf("%d fields were found in runbooks, of %d", found, len(fields))
	}
}

// Dashboards are what Grafana imports: panels with places and queries of their own.
func TestDashboards(t *testing.T) {
	for _, file := range filesLike(t, "../../deploy/grafana/*.json", 3) {
		var board struct {
			UID    string
			Panels []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(textOf(t, file)), &board); err != nil || board.UID == "" || len(board.Panels) == 0 {
			t.Errorf("%s is no dashboard: %v", file, err)
		}
		taken := make(map[[2]int]string)
		for _, p := range board.Panels {
			place := [2]int{p.GridPos.X, p.GridPos.Y}
			if p.Title == "" || len(p.Targets) == 0 || p.GridPos.W == 0 || taken[place] != "" {
				t.Errorf("%s: panel %d %q shows nothing, or lies upon %q", file, p.ID, p.Title, taken[place])
			}
			taken[place] = p.Title
		}
	}
}

// What Prometheus itself says of the rules and of the configuration beside them.
func TestPromtool(t *testing.T) {
	promtool := require.Program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}, {"check", "config", "--syntax-only", "prometheus.yml"}} {
		command := exec.Command(promtool, args...)
		command.Dir = filepath.Dir(alertsFile)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	// Queries of dashboards, as rules: so promtool reads them.
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboards\n  rules:\n")
	expression := regexp.MustCompile(`"expr": (".*")`)
	for _, file := range filesLike(t, "../../deploy/grafana/*.json", 3) {
		for _, match := range expression.FindAllStringSubmatch(textOf(t, file), -1) {
			rules.WriteString("  - record: a:b\n    expr: " + strings.ReplaceAll(match[1], "$__rate_interval", "1m") + "\n")
		}
	}
	path := filepath.Join(t.TempDir(), "dashboards.yml")
	if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", "--lint=none", path).CombinedOutput(); err != nil {
		t.Errorf("queries of dashboards: %v\n%s", err, out)
	}
}

// In OpenMetrics, as Prometheus asks for it, names stay and buckets show traces.
func TestOpenMetrics(t *testing.T) {
	at := time.Unix(1000, 0)
	tel := open(t, Options{Listen: "127.0.0.1:0", Sources: []Source{func(s *Sink) {
		s.Value("meridian_budget_force_triggered", 3)
		s.Value("meridian_gateway_requests_total", 4, "finished")
		s.Distribution("meridian_gateway_phase_seconds", Distribution{
			Count: 2, Sum: 3, Buckets: map[float64]uint64{1: 1, 5: 1}, Exemplars: []Exemplar{{Trace: "0af7", Value: 0.5, At: at}, {Trace: "beef", Value: 9, At: at}},
		}, "total")
	}}})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+tel.Addr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\nmeridian_budget_force_triggered 3.0\n", "\nmeridian_gateway_requests_total{outcome=\"finished\"} 4.0\n",
		`meridian_gateway_phase_seconds_bucket{phase="total",le="1.0"} 1 # {trace_id="0af7"} 0.5 1000.0`,
		`meridian_gateway_phase_seconds_bucket{phase="total",le="+Inf"} 2 # {trace_id="beef"} 9.0 1000.0`,
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the page lacks %s", line)
		}
	}
}
