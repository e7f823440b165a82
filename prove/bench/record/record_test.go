package record

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/prove/replay/workload"
	"meridian/see/ledger"
	"meridian/serve/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ended(at time.Duration, prompt, think, output int) *ledger.Record {
	return &ledger.Record{
		ID: "x", Began: noon.Add(at), Outcome: ledger.Finished, PromptTokens: prompt, ThinkTokens: think, OutputTokens: think + output,
	}
}

// admin answers with one page after the other, and then with nothing new.
func admin(t *testing.T, pages ...gateway.Records) string {
	t.Helper()
	var mu sync.Mutex // a handler may still be at its end when the next one begins
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		page := gateway.Records{Records: []*ledger.Record{}}
		if len(pages) > 0 {
			last := pages[len(pages)-1]
			page.First, page.Next, page.Oldest = last.Next, last.Next, last.Oldest
		}
		if asked < len(pages) {
			page = pages[asked]
		}
		asked++
		_ = json.NewEncoder(w).Encode(page)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func page(first uint64, oldest time.Duration, records ...*ledger.Record) gateway.Records {
	return gateway.Records{First: first, Next: first + uint64(len(records)), Oldest: noon.Add(oldest), Records: records}
}

func recorded(t *testing.T, url string) ([]string, Summary, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var file bytes.Buffer
	s, err := Run(t.Context(), Options{Admin: url, For: 500 * time.Millisecond, Every: time.Millisecond, Past: true, HTTP: client}, &file)
	lines := strings.Split(strings.TrimSpace(file.String()), "\n")
	return lines[1:], s, err
}

// Requests end in another order than they came in, and are written in the
// latter: one waits until none that began before it still runs.
func TestArrivalsAreInOrder(t *testing.T) {
	s := time.Second
	lines, summary, err := recorded(t, admin(t,
		page(0, 1*s, ended(3*s, 30, 0, 3)),
		page(1, 2*s, ended(1*s, 10, 4, 1), ended(2*s, 20, 0, 2)),
		page(3, 9*s, ended(5*s, 50, 0, 5), ended(4*s, 40, 0, 4)),
	))
	want := []string{
		`{"at_us":0,"prompt":10,"think":4,"output":1}`, `{"at_us":1000000,"prompt":20,"output":2}`, `{"at_us":2000000,"prompt":30,"output":3}`,
		`{"at_us":3000000,"prompt":40,"output":4}`, `{"at_us":4000000,"prompt":50,"output":5}`,
	}
	if err != nil || fmt.Sprint(lines) != fmt.Sprint(want) || summary != (Summary{Requests: 5}) {
		t.Errorf("%v, %+v\n%s", err, summary, strings.Join(lines, "\n"))
	}
}

func TestWhatIsLostIsCounted(t *testing.T) {
	s := time.Second
	refused, silent := ended(4*s, 1, 0, 0), ended(4*s, 1, 0, 0)
	refused.Outcome, refused.OutputTokens = ledger.Refused, 5
	lines, summary, err := recorded(t, admin(t,
		page(0, 3*s, ended(2*s, 20, 0, 2)),
		page(7, 9*s, ended(1*s, 10, 0, 1), refused, silent, ended(5*s, 50, 3, 0)),
	))
	if err != nil || summary != (Summary{Requests: 3, LeftOut: 2, Lost: 6, Late: 1}) {
		t.Errorf("%v, %+v", err, summary)
	}
	// One that only thought counts its last token as the answer.
	if len(lines) != 3 || lines[2] != `{"at_us":3000000,"prompt":50,"think":2,"output":1}` {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
}

// An admin listener that says what cannot be is not believed.
func TestHostileAnswers(t *testing.T) {
	wild := ended(0, 1<<40, 1<<40, 1<<40)
	wild.Prefix, wild.PrefixTokens, wild.Tenant = []uint64{1 << 60, 2, 3}, prefixTokens, 9
	short := ended(time.Second, 3, -5, 9)
	short.Prefix, short.PrefixTokens = []uint64{1, 2, 3}, prefixTokens
	lines, summary, err := recorded(t, admin(t, page(0, time.Minute, wild, nil, short)))
	if err != nil || summary.Requests != 2 {
		t.Fatalf("%v, %+v", err, summary)
	}
	path := filepath.Join(t.TempDir(), "wild.jsonl")
	if err := os.WriteFile(path, []byte(`{"schema":"meridian.workload/1","prefix_tokens":512}`+"\n"+strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := workload.Open(path, workload.Options{}); err != nil {
		t.Errorf("what was written cannot be read: %v\n%s", err, strings.Join(lines, "\n"))
	}
	for name, pages := range map[string][]gateway.Records{
		"numbers that do not fit": {{First: 0, Next: 5}},
		"numbers that go back":    {page(9, 0), page(3, 0)},
	} {
		if _, _, err := recorded(t, admin(t, pages...)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if _, _, err := recorded(t, server.URL); err == nil || !strings.Contains(err.Error(), "admin listener") {
		t.Errorf("another server: %v", err)
	}
}

func TestRefusesNegativeTimes(t *testing.T) {
	if _, err := Run(context.Background(), Options{For: -1}, &bytes.Buffer{}); err == nil {
		t.Error("a negative time")
	}
}
