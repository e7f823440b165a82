package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/serve/openai"
)

func TestPassedOn(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, func(o *Options) { o.MaxBodyBytes = 2048 })
	body := `{"model":"m", "prompt":"x" }`
	if r := cell.post("/tokenize?a=b", body); r.status != http.StatusCreated || string(r.body) != "/tokenize?a=b "+body+"\n" || r.header.Get("X-Request-Id") == "" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if r := cell.get("/version"); string(r.body) != `{"version":"0.32.0"}` {
		t.Errorf("got %d %s", r.status, r.body)
	}
	for name, c := range map[string]struct {
		path, body string
		status     int
	}{
		"what changes an engine":   {"/sleep", "{}", http.StatusNotFound},
		"what no engine knows":     {"/v1/nothing", "{}", http.StatusNotFound},
		"below what is passed on":  {"/v1/responses/resp_1/cancel", "{}", http.StatusNotFound},
		"what is kept":             {"/v1/responses", `{"model":"m","previous_response_id":"resp_1"}`, http.StatusBadRequest},
		"what goes on by itself":   {"/v1/responses", `{"model":"m","background":true}`, http.StatusBadRequest},
		"so in other words":        {"/v1/responses", `{"model":"m","background":"yes"}`, http.StatusBadRequest},
		"another model":            {"/tokenize", `{"model":"n"}`, http.StatusNotFound},
		"no JSON":                  {"/tokenize", `x`, http.StatusBadRequest},
		"too much":                 {"/tokenize", `{"prompt":"` + strings.Repeat("x", 4096) + `"}`, http.StatusRequestEntityTooLarge},
		"a model in two spellings": {"/tokenize", `{"model":"m","Model":"n"}`, http.StatusBadRequest},
	} {
		r := cell.post(c.path, c.body)
		var fault struct{ Error *openai.Error }
		if err := json.Unmarshal(r.body, &fault); err != nil || fault.Error == nil || fault.Error.Message == "" || r.status != c.status {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	d.server.Close()
	if r := cell.post("/tokenize", body); r.status != http.StatusServiceUnavailable {
		t.Errorf("without an engine: %d %s", r.status, r.body)
	}
}

// An engine that cannot have seen the request is followed by another.
func TestPassedOnElsewhere(t *testing.T) {
	first, second := newFakeVLLM(t), newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{first, second}, func(o *Options) { o.ProbeInterval = time.Hour })
	first.server.Close()
	for range 3 {
		if r := cell.post("/tokenize", `{"model":"m"}`); r.status != http.StatusCreated {
			t.Errorf("got %d %s", r.status, r.body)
		}
	}
}

// What broke off is counted as failed, like what never began.
func TestPassedAnswerBreaksOff(t *testing.T) {
	cell := hostileCell(t, hostileModel, "e", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	response, err := http.Post("http://"+cell.Addr()+"/tokenize", "application/json", strings.NewReader(`{"model":"m"}`))
	if err == nil {
		_, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	if err == nil {
		t.Error("half an answer was taken for a whole one")
	}
	cell.until("it is counted", func() bool { return cell.Metrics().Passed["failed"] == 1 })
	if answered := cell.Metrics().Passed["answered"]; answered != 0 {
		t.Errorf("%d are counted as answered", answered)
	}
}

func TestProxyPathsAreChecked(t *testing.T) {
	for path, good := range map[string]bool{
		"/tokenize": true, "/v1/embeddings": true, "tokenize": false, "/a/": false, "/a/{x}": false, "/v1/completions": false, "/health": false, "/a?b": false, "/a/../b": false, "/": false,
	} {
		if err := checkProxyPath(path); (err == nil) != good {
			t.Errorf("%s: %v", path, err)
		}
	}
	o := Options{Listen: "127.0.0.1:0", Backends: []Backend{{}}, ProxyPaths: []string{"/a", "/a"}}
	if err := o.complete(); err == nil {
		t.Error("a path was taken twice")
	}
}
