package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"meridian/decide/placement"
	"meridian/serve/openai"
)

// beforeVLLM is a gateway before engines that look like vLLM.
func beforeVLLM(t *testing.T, prefill, decode []*fakeVLLM, change func(*Options)) *testCell {
	t.Helper()
	return newCell(t, 0, 0, func(o *Options) {
		for i, f := range prefill {
			o.Backends = append(o.Backends, Backend{URL: f.server.URL, Role: placement.Prefill, Engine: fmt.Sprintf("p%d", i), APIKey: f.key})
		}
		for i, f := range decode {
			o.Backends = append(o.Backends, Backend{URL: f.server.URL, Role: placement.Decode, Engine: fmt.Sprintf("d%d", i), APIKey: f.key})
		}
		o.LegKey = nil
		if change != nil {
			change(o)
		}
	})
}

// What vLLM understands and the gateway does not is passed on as it is, and so
// is what vLLM answers.
func TestNothingIsTouched(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, nil)
	for name, c := range map[string]struct{ path, body, answer string }{
		"tools, streamed": {
			openai.PathChat,
			`{ "model":"m","stream" : true,"messages":[{"role":"user","content":[{"type":"text","text":"what is é\u00e9"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}],` +
				`"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false, "temperature":1.0 }`,
			`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}` + "\n\n" +
				`data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call-1","type":"function","index":0,"function":{"name":"f","arguments":"{\"a\": 1}"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n" +
				`data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls","stop_reason":null}]}` + "\n\n" + "data: [DONE]\n\n",
		},
		"structured output": {
			openai.PathChat,
			`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}},"structured_outputs":{"regex":"a+"},"guided_json":{"type":"object"},"vllm_xargs":{"k":1}}`,
			`{"id":"chatcmpl-2","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"{}","reasoning":null,"tool_calls":[]},"finish_reason":"stop","stop_reason":null,"token_ids":null}],"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1},"kv_transfer_params":null}`,
		},
		"logprobs": {
			openai.PathCompletions,
			`{"model":"m","prompt":"x","logprobs":2,"stream":true,"max_tokens":1,"temperature":0,"top_k":5,"bad_words":["y"],"logit_bias":{"1":2}}`,
			`data: {"id":"cmpl-3","choices":[{"index":0,"text":"a","logprobs":{"text_offset":[0],"token_logprobs":[-1.5e-05],"tokens":["a"],"top_logprobs":[{"a":-0.1,"b":-0.2}]},"finish_reason":"length"}]}` + "\n\n" + "data: [DONE]\n\n",
		},
	} {
		d.whole, d.stream = c.answer, c.answer
		r := cell.post(c.path, c.body)
		bodies := d.seen()
		if got := bodies[len(bodies)-1]; got != c.body {
			t.Errorf("%s: the engine got\n%s\nfor\n%s", name, got, c.body)
		}
		if r.status != http.StatusOK || string(r.body) != c.answer {
			t.Errorf("%s: the client got %d\n%s\nof\n%s", name, r.status, r.body, c.answer)
		}
	}
}

// A pair of vLLM servers with a connector of their own finds what it sent: the
// gateway adds nothing to it and takes nothing away.
func TestForeignTransferParams(t *testing.T) {
	p, d := newFakeVLLM(t), newFakeVLLM(t)
	p.ticket = `{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[1, 2], [3]], "remote_engine_id": "e-1", "remote_request_id": "cmpl-9", ` +
		`"remote_host": "10.0.0.3", "remote_port": 5600, "tp_size": 2, "remote_num_tokens": 33, "remote_blocks_expiry_time": 1.5e3, "transfer_mode": "read", "unheard_of": {"a": [null]}}`
	d.whole = `{"id":"x","choices":[{"index":0,"text":"hi","finish_reason":"stop"}],"usage":{"prompt_tokens":80,"completion_tokens":1,"total_tokens":81},"kv_transfer_params":{"remote_host":"10.0.0.4"}}`
	cell := beforeVLLM(t, []*fakeVLLM{p}, []*fakeVLLM{d}, nil)
	prompt := strings.Repeat("abcdefgh", 40)
	request := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":7,"min_tokens":3,"stream":false,"temperature":0.5,"logit_bias":{"5":1}}`, prompt)
	r := cell.post(openai.PathCompletions, request)
	if r.status != http.StatusOK || strings.Contains(string(r.body), "10.0.0.4") || !strings.Contains(string(r.body), `"total_tokens":81`) {
		t.Errorf("the client got %d %s", r.status, r.body)
	}
	var prefill map[string]json.RawMessage
	if err := json.Unmarshal([]byte(p.seen()[0]), &prefill); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"max_tokens": "1", "stream": "false", "min_tokens": "", "stream_options": "", "logit_bias": `{"5":1}`, "temperature": "0.5"} {
		if got := string(prefill[name]); got != want {
			t.Errorf("the prefill leg has %s %q, want %q", name, got, want)
		}
	}
	for _, part := range []string{`"do_remote_decode":true`, `"do_remote_prefill":false`, `"remote_engine_id":null`, `"remote_block_ids":null`, `"remote_host":null`, `"remote_port":null`} {
		if !strings.Contains(string(prefill["kv_transfer_params"]), part) {
			t.Errorf("the prefill leg has no %s: %s", part, prefill["kv_transfer_params"])
		}
	}
	var decode map[string]json.RawMessage
	if err := json.Unmarshal([]byte(d.seen()[0]), &decode); err != nil {
		t.Fatal(err)
	}
	if got := string(decode["kv_transfer_params"]); got != p.ticket {
		t.Errorf("the decode engine got %s, the prefill engine sent %s", got, p.ticket)
	}
	if string(decode["max_tokens"]) != "7" || string(decode["min_tokens"]) != "3" {
		t.Errorf("the decode leg is %s", d.seen()[0])
	}
}

func TestTransfersOfClientsAreRefused(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, nil)
	for _, member := range []string{
		`"kv_transfer_params":{"do_remote_prefill":true}`, `"ec_transfer_params":{"a":1}`, `"vllm_xargs":{"kv_transfer_params":{"a":1}}`,
		`"vllm_xargs":{"KV_transfer_params":"x"}`, `"Kv_Transfer_Params":{}`,
	} {
		for _, path := range []string{openai.PathCompletions, "/v1/responses", "/tokenize"} {
			r := cell.post(path, `{"model":"m","prompt":"x",`+member+`}`)
			if r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "transfer_params") {
				t.Errorf("%s with %s: %d %s", path, member, r.status, r.body)
			}
		}
	}
	// Where an endpoint has what is for its engine alone to know.
	for _, body := range []string{
		`{"model":"m","sampling_params":{"extra_args":{"kv_transfer_params":{"a":1}}}}`, `{"model":"m","requests":[{"kv_\u0074ransfer_params" : true}]}`,
	} {
		if r := cell.post("/v1/responses", body); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "transfer_params") {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	if seen := d.seen(); len(seen) > 0 {
		t.Errorf("the engine saw %q", seen)
	}
	harmless := `{"model":"m","prompt":"say \"kv_transfer_params\": {}","a":{"kv_transfer_params": null}}`
	if r := cell.post("/v1/responses", harmless); r.status != http.StatusCreated {
		t.Errorf("%s: %d %s", harmless, r.status, r.body)
	}
}

// Thoughts are seen under both of their names.
func TestReasoningUnderBothNames(t *testing.T) {
	for _, name := range []string{"reasoning", "reasoning_content"} {
		d := newFakeVLLM(t)
		cell := beforeVLLM(t, nil, []*fakeVLLM{d}, nil)
		d.stream = `data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n" +
			fmt.Sprintf(`data: {"id":"1","choices":[{"index":0,"delta":{%q:"hm"}}]}`, name) + "\n\n" +
			`data: {"id":"1","choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}` + "\n\n" + "data: [DONE]\n\n"
		r := cell.post(openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`)
		if string(r.body) != d.stream {
			t.Errorf("%s: the client got %s", name, r.body)
		}
		l := cell.record(r).Latency
		if l.TTFTMs == 0 || l.TTFVTMs < l.TTFTMs || l.TTOTMs == 0 {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// What vLLM sends only because the gateway asks for token ids does not reach the
// client: it sees the stream that it would see without a gateway.
func TestPiecesForTheGatewayOnly(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, nil)
	piece := func(delta, rest string) string {
		return `data: {"id":"1","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null` + rest + `}]}` + "\n\n"
	}
	end := `data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + "data: [DONE]\n\n"
	d.stream = piece(`{"role":"assistant","content":""}`, "") + piece("{}", `,"token_ids":[1]`) + piece("{}", `,"token_ids":[2]`) +
		piece(`{"content":"ab"}`, `,"token_ids":[3]`) + end
	r := cell.post(openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"temperature":0,"max_tokens":9}`)
	if want := piece(`{"role":"assistant","content":""}`, "") + piece(`{"content":"ab"}`, "") + end; string(r.body) != want {
		t.Errorf("the client got\n%s\nwant\n%s", r.body, want)
	}
	if !strings.Contains(d.seen()[0], "return_token_ids") {
		t.Error("the client asked for no ids")
	}
}

// Models are shown as their engines show them: benchmarks read the root.
func TestModelsOfVLLM(t *testing.T) {
	cell := beforeVLLM(t, nil, []*fakeVLLM{newFakeVLLM(t)}, nil)
	var list struct{ Data []map[string]any }
	if err := json.Unmarshal(cell.get("/v1/models").body, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 2 || list.Data[0]["root"] != "org/model" || list.Data[0]["max_model_len"] != 4096.0 || list.Data[0]["owned_by"] != "vllm" {
		t.Errorf("models are %v", list.Data)
	}
	reference := newCell(t, 0, 1, nil)
	var card map[string]any
	if err := json.Unmarshal(reference.get("/v1/models/m").body, &card); err != nil {
		t.Fatal(err)
	}
	if card["root"] != "m" || card["owned_by"] != openai.OwnedByMeridian {
		t.Errorf("a model without a root is shown as %v", card)
	}
}

func TestKeysOfEngines(t *testing.T) {
	d := newFakeVLLM(t)
	d.key, d.whole = "engine-secret", `{"choices":[]}`
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, func(o *Options) { o.APIKeys = []string{"client-secret"} })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+cell.Addr()+openai.PathCompletions, strings.NewReader(`{"model":"m","prompt":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer client-secret")
	if r := cell.do(request); r.status != http.StatusOK {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if r := cell.post("/tokenize", `{}`); r.status != http.StatusUnauthorized {
		t.Errorf("a client without a key got %d %s", r.status, r.body)
	}
}

func (c *testCell) get(path string) reply {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://"+c.Addr()+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.do(request)
}
