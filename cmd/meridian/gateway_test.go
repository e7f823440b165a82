package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"meridian/decide/policy"
	"meridian/internal/until"
	"meridian/prove/replay"
	"meridian/run/config"
	"meridian/serve/gateway"
)

// The schema and the gateway agree about what is passed on.
func TestProxyPathsOfTheSchema(t *testing.T) {
	if got := config.Defaults().Gateway.ProxyPaths; !slices.Equal(got, gateway.ProxyPaths) {
		t.Errorf("the schema has %q, the gateway %q", got, gateway.ProxyPaths)
	}
}

// What replay assumes of engines and gateways is what the configuration says
// where nothing is configured.
func TestReplayHasTheDefaultsOfTheSchema(t *testing.T) {
	in := config.Defaults()
	if got := (&gatewayCommand{}).options(in, nil).Place; got != replay.DefaultPlace {
		t.Errorf("a gateway places with %+v, replay with %+v", got, replay.DefaultPlace)
	}
	if got := in.Scheduler.PreemptMaxFraction; got != replay.DefaultPreemptMaxFraction {
		t.Errorf("the schema lets %v be preempted, replay %v", got, replay.DefaultPreemptMaxFraction)
	}
	budgets := [3]float64{in.Scheduler.ThinkTPOTBudgetMs, in.Scheduler.OutputTPOTBudgetMs, in.Scheduler.ThinkBatchMultiplier}
	if want := [3]float64{
		float64(policy.DefaultThinkTPOTBudget / policy.Millisecond), float64(policy.DefaultOutputTPOTBudget / policy.Millisecond), policy.DefaultThinkBatchMultiplier,
	}; budgets != want {
		t.Errorf("the schema's budgets are %v, the policy's %v", budgets, want)
	}
}

func TestEngineKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	for text, want := range map[string]string{"secret\n": "secret", "": "", "\n": "", "a\nb\n": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := engineKey(config.Backend{APIKeyFile: file})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := engineKey(config.Backend{APIKeyFile: file + ".none"}); err == nil {
		t.Error("a file that is not there was read")
	}
	if got, err := engineKey(config.Backend{APIKeyFile: config.None}); got != "" || err != nil {
		t.Errorf("no file: %q, %v", got, err)
	}
}

func TestCacheEventsOfTheConfiguration(t *testing.T) {
	for _, c := range []struct {
		in   config.Backend
		want gateway.CacheEvents
	}{
		{config.Backend{KVEvents: "auto", KVEventsReplay: "none", KVEventsRanks: 1}, gateway.CacheEvents{Ranks: 1}},
		{config.Backend{KVEvents: "none", KVEventsReplay: "none", KVEventsRanks: 1}, gateway.CacheEvents{Off: true, Ranks: 1}},
		{
			config.Backend{KVEvents: "tcp://*:5557", KVEventsReplay: "tcp://*:5558", KVEventsRanks: 2},
			gateway.CacheEvents{Events: "tcp://*:5557", Replay: "tcp://*:5558", Ranks: 2},
		},
	} {
		if got := cacheEvents(c.in); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.in, got, c.want)
		}
	}
}

// await is `await URL PATTERN…`: it asks until the page says all of it.
func await(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: await URL PATTERN…")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	until.Well(script{ts}, fmt.Sprintf("%s says %q", args[0], args[1:]), func() string {
		page := get(ctx, args[0])
		if saysAll(page, args[1:]) {
			return ""
		}
		return fmt.Sprintf("it says\n%s", page)
	})
}

func get(ctx context.Context, url string) []byte {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return []byte(err.Error())
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return []byte(err.Error())
	}
	defer response.Body.Close()
	page, _ := io.ReadAll(response.Body) // what is missing is missed
	return page
}

func saysAll(page []byte, patterns []string) bool {
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).Match(page) {
			return false
		}
	}
	return true
}
