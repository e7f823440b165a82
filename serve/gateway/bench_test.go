package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"meridian/decide/placement"
	"meridian/serve/openai"
)

// BenchmarkWhole and BenchmarkStream are for profiles: client, gateway and a
// canned engine share the process. `meridian bench gateway` measures.
func BenchmarkWhole(b *testing.B) { benchmark(b, "") }

func BenchmarkStream(b *testing.B) { benchmark(b, `,"stream":true`) }

func benchmark(b *testing.B, more string) {
	events := strings.Repeat("data: {\"id\":\"x\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"word \",\"finish_reason\":null,\"token_ids\":[5]}]}\n\n", 16) +
		"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.URL.Path == openai.PathModels:
			_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"meridian"}]}`)
		case more != "":
			w.Header().Set("Content-Type", openai.EventStream)
			_, _ = io.WriteString(w, events)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"x","choices":[{"index":0,"text":"word","finish_reason":"stop"}],"meridian":{"kv":"local"}}`)
		}
	}))
	defer engine.Close()
	g, err := Open(b.Context(), Options{
		Listen: "127.0.0.1:0", Backends: []Backend{{URL: engine.URL, Role: placement.Both}}, Place: placement.Options{AffinityWeight: 1},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close(context.Background())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	body := completion(strings.Repeat("All work. ", 100), more)
	b.ReportAllocs()
	for b.Loop() {
		response, err := client.Post("http://"+g.Addr()+openai.PathCompletions, "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			b.Fatal(response.Status)
		}
	}
}
