package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"meridian/see/ledger"
	"meridian/serve/openai"
)

// Records tell prompts that begin alike and requests of one sender from others,
// and nothing that leads back to either.
func TestShapesInRecords(t *testing.T) {
	beginning := strings.Repeat("the same beginning of a prompt, ", 200) // 6,400 bytes: 3 times 512 tokens and a bit
	shape := func(c *testCell, prompt, more string) ledger.Shape {
		t.Helper()
		return c.record(c.post(openai.PathCompletions, completion(prompt, more))).Shape
	}
	c := newCell(t, 0, 1, nil)
	a := shape(c, beginning, `,"user":"ann"`)
	b := shape(c, beginning+strings.Repeat("and another end. ", 300), `,"user":"ben"`)
	again := shape(c, beginning, `,"user":"ann"`)
	if len(a.Prefix) != 3 || a.PrefixTokens != 512 || a.PromptAbout < 1600 || len(b.Prefix) < 5 {
		t.Fatalf("shapes %+v and %+v", a, b)
	}
	if !slices.Equal(a.Prefix, b.Prefix[:3]) || !slices.Equal(a.Prefix, again.Prefix) {
		t.Errorf("prompts that begin alike: %v, %v and %v", a.Prefix, b.Prefix, again.Prefix)
	}
	if a.Tenant == 0 || a.Tenant == b.Tenant || a.Tenant != again.Tenant {
		t.Errorf("tenants: %d, %d and %d", a.Tenant, b.Tenant, again.Tenant)
	}
	if none := shape(c, "short", ""); none.Tenant != 0 || len(none.Prefix) != 0 {
		t.Errorf("no user's short prompt: %+v", none)
	}
	other := shape(newCell(t, 0, 1, nil), beginning, `,"user":"ann"`)
	if other.Tenant == a.Tenant || slices.Equal(other.Prefix, a.Prefix) {
		t.Error("another gateway gives the same numbers, so a text could be guessed by them")
	}
}

func TestThoughtsInRecords(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	for _, more := range []string{`,"stream":true,"think_tokens":4`, `,"stream":true,"think_tokens":4,"stream_options":{"include_usage":true}`} {
		record := c.record(c.post(openai.PathChat, chat("short", more)))
		if record.ThinkTokens != 4 || record.OutputTokens != 12 {
			t.Errorf("%s: %d of %d tokens were thought", more, record.ThinkTokens, record.OutputTokens)
		}
	}
}

func TestRecordsCanBeFollowed(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	ask := func(after string) (Records, int) {
		t.Helper()
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.AdminAddr()+"/debug/records?after="+after, nil)
		r := c.do(request)
		var records Records
		if r.status == 200 {
			if err := json.Unmarshal(r.body, &records); err != nil {
				t.Fatal(err)
			}
		}
		return records, r.status
	}
	for range 3 {
		c.record(c.post(openai.PathCompletions, completion("short", "")))
	}
	all, _ := ask("0")
	if all.First != 0 || all.Next != 3 || len(all.Records) != 3 || all.Oldest.Before(all.Records[2].Began) {
		t.Errorf("three records: %+v", all)
	}
	if rest, _ := ask("2"); rest.First != 2 || len(rest.Records) != 1 || rest.Records[0].ID != all.Records[2].ID {
		t.Errorf("the last: %+v", rest)
	}
	if none, _ := ask("9"); none.First != 3 || none.Next != 3 || len(none.Records) != 0 {
		t.Errorf("after the end: %+v", none)
	}
	if _, status := ask("x"); status != http.StatusBadRequest {
		t.Errorf("after=x: %d", status)
	}
}
