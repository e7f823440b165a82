package openai

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPromptForms(t *testing.T) {
	for text, want := range map[string]Prompt{
		`"hi"`:        {Texts: []string{"hi"}},
		`""`:          {Texts: []string{""}},
		`["a","b"]`:   {Texts: []string{"a", "b"}},
		`[1,2]`:       {Tokens: [][]uint32{{1, 2}}},
		`[[1],[2,3]]`: {Tokens: [][]uint32{{1}, {2, 3}}},
	} {
		var got Prompt
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		if back, err := json.Marshal(got); err != nil || string(back) != text {
			t.Errorf("%s became %s, %v", text, back, err)
		}
	}
	for _, text := range []string{`null`, `1`, `[]`, `[null]`, `["a",1]`, `[-1]`, `[4294967296]`, `{}`, `[["a"]]`, `[null,"a"]`, `[1.5]`} {
		if json.Unmarshal([]byte(text), new(Prompt)) == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestChatRequest(t *testing.T) {
	const text = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":null}],"stop":"x","max_tokens":1,"max_completion_tokens":2,"kv_transfer_params":null}`
	var r ChatRequest
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if r.Messages[0].Content != "ab" || r.Messages[1].Content != "" || r.Stop[0] != "x" || *r.OutputLimit() != 2 || r.KVTransfer != nil {
		t.Errorf("got %+v", r)
	}
	for _, content := range []string{`[{"type":"image_url"}]`, `5`} {
		if json.Unmarshal([]byte(content), new(Content)) == nil {
			t.Errorf("content %s was taken", content)
		}
	}
}

func TestKVTransferKeepsOthers(t *testing.T) {
	const text = `{"do_remote_decode":false,"do_remote_prefill":true,"meridian_ticket":"AQI=","remote_block_ids":[[1,2]],"tp_size":2}`
	var k KVTransfer
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		t.Fatal(err)
	}
	if !k.DoRemotePrefill || string(k.Ticket) != "\x01\x02" || len(k.Others) != 2 {
		t.Errorf("got %+v", k)
	}
	if back, err := json.Marshal(k); err != nil || string(back) != text {
		t.Errorf("became %s, %v", back, err)
	}
	const leg = `{"do_remote_decode":true,"do_remote_prefill":false,"meridian_leg":"AQ==","meridian_transfer":"ab","remote_block_ids":null,"remote_engine_id":null,"remote_host":null,"remote_port":null}`
	if got, _ := json.Marshal(RemoteDecode("ab", []byte{1})); string(got) != leg {
		t.Errorf("a prefill leg is %s", got)
	}
}

func TestParseError(t *testing.T) {
	code := "c"
	for text, want := range map[string]*Error{
		`{"error":{"message":"m","type":"t","code":"c"}}`:        {Message: "m", Type: "t", Code: &code, Status: 400},
		`{"object":"error","message":"m","type":"t","code":400}`: {Message: "m", Type: "t", Status: 400},
		`oops`: {Message: `the engine answered with status 400: "oops"`, Type: TypeServer, Status: 400},
	} {
		if diff := cmp.Diff(want, ParseError(400, []byte(text))); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
