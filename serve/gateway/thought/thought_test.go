package thought

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	"meridian/serve/openai"
)

// FuzzThoughts: whatever an engine sends, what is JSON stays JSON, and the second look at it
// changes nothing.
func FuzzThoughts(f *testing.F) {
	for _, data := range []string{
		`{"choices":[{"index":0,"delta":{"content":"<think>a"}},{"index":1,"message":{"content":"<think>a</think>b","tool_calls":[]}}]}`,
		`{"choices":[{"delta":{"content":}},{"index":,"delta":[]},7,{"index":-1,"delta":{"content":"x"}}],"usage":{"completion_tokens_details":[]}}`,
		`{"choices":[{"delta":{"content":"<th"},"token_ids":[900,1]},{"delta":{"content":"ink>","reasoning":"r"},"token_ids":[x]}],"usage":{}}`,
	} {
		f.Add([]byte(data), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, opened bool) {
		markers := Markers{Starts: []string{"<think>"}, Ends: []string{"</think>"}, StartIDs: []uint32{900}, EndIDs: []uint32{901}}
		th := New(Options{Markers: markers, Opened: opened, Name: "reasoning", Answers: 2, Splits: new(atomic.Bool)})
		for range 2 {
			var c openai.Chunk
			if !c.Parse(data) {
				return
			}
			out, _ := th.Rewrite(&c)
			if json.Valid(data) && !json.Valid(out) {
				t.Fatalf("%s became %s", data, out)
			}
			if rest := th.Rest(); rest != nil && !json.Valid(rest) {
				t.Fatalf("what is left is %s", rest)
			}
			data = out
		}
	})
}

// BenchmarkThoughts is what a chunk costs: of a thought that is taken out, and of the answer
// after it.
func BenchmarkThoughts(b *testing.B) {
	chunk := []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`)
	for _, part := range []struct {
		name  string
		first string
	}{{"thought", "<think>"}, {"answer", "<think></think>"}} {
		b.Run(part.name, func(b *testing.B) {
			th := New(Options{
				Markers: Markers{Starts: []string{"<think>"}, Ends: []string{"</think>"}}, Name: "reasoning", Answers: 1, Splits: new(atomic.Bool),
			})
			var c openai.Chunk
			c.Parse([]byte(`{"choices":[{"index":0,"delta":{"content":"` + part.first + `"}}]}`))
			th.Rewrite(&c)
			b.ReportAllocs()
			for b.Loop() {
				c.Parse(chunk)
				if data, changed := th.Rewrite(&c); changed {
					c.Parse(data)
				}
			}
		})
	}
}
