package node

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/decide/placement"
	"meridian/internal/until"
	"meridian/see/ledger"
	"meridian/see/telemetry"
	"meridian/serve/gateway"
)

func gatewayOptions(t *testing.T) GatewayOptions {
	t.Helper()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"x","choices":[{"text":"yes","finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	}))
	t.Cleanup(engine.Close)
	o := GatewayOptions{StateDir: filepath.Join(t.TempDir(), "state")}
	o.Listen, o.Admin = "127.0.0.1:0", "127.0.0.1:0"
	o.Backends = []gateway.Backend{{URL: engine.URL, Role: placement.Both}}
	return o
}

func fetch(t *testing.T, url, key, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if body != "" {
		request, err = http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	}
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// A gateway's process has a key file, records on disk and all its metrics.
func TestGatewayProcess(t *testing.T) {
	o := gatewayOptions(t)
	o.APIKeyFile = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(o.APIKeyFile, []byte("# of the team\n\n  secret-one team  \nsecret-two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := OpenGateway(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key string) int {
		status, _ := fetch(t, "http://"+g.Addr()+"/v1/completions", key, `{"model":"m","prompt":"x"}`)
		return status
	}
	for key, want := range map[string]int{"secret-one": 200, "secret-two": 200, "secret-one team": 401, "# of the team": 401, "": 401} {
		if got := ask(key); got != want {
			t.Errorf("key %q: %d, want %d", key, got, want)
		}
	}
	served := `meridian_gateway_requests_total{outcome="finished"} 2`
	var page string
	// A request is counted after its client has the answer.
	until.True(t, "what was served is counted", func() bool {
		_, page = fetch(t, "http://"+g.AdminAddr()+"/metrics", "", "")
		return strings.Contains(page, served)
	})
	for _, m := range telemetry.Catalogue() {
		if m.Room == "gateway" && !strings.Contains(page, "\n"+m.Name) {
			t.Errorf("/metrics lacks %s", m.Name)
		}
	}
	if err := g.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if records, _, err := ledger.LatestIn(o.StateDir, 10); err != nil || len(records) != 2 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func TestGatewayRefuses(t *testing.T) {
	for name, change := range map[string]func(*GatewayOptions){
		"no key file": func(o *GatewayOptions) { o.APIKeyFile = filepath.Join(o.StateDir, "none") },
		"empty keys":  func(o *GatewayOptions) { o.APIKeyFile = os.DevNull },
		"no cert":     func(o *GatewayOptions) { o.Cert, o.Key = "none.pem", "none.key" },
		"directory":   func(o *GatewayOptions) { o.Backends, o.DirectoryEndpoints = nil, []string{"http://10.0.0.1:2379"} },
		"no listen":   func(o *GatewayOptions) { o.Listen = "" },
	} {
		o := gatewayOptions(t)
		change(&o)
		if g, err := OpenGateway(t.Context(), o); err == nil {
			t.Errorf("%s: it opened", name)
			_ = g.Close(context.Background())
		}
	}
}
