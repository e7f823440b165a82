package openai

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func parsed(t interface{ Fatal(...any) }, text string) *Body {
	b, err := ParseBody([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBodyKeepsWhatItDoesNotKnow(t *testing.T) {
	b := parsed(t, ` { "model" : "m", "tools":[{"a":"}]\""}],"x": 1e5 ,"max_tokens":5,"s":"\\"}`)
	for name, c := range map[string]struct {
		edits []Edit
		want  string
	}{
		"nothing": {[]Edit{{"none", nil}}, `{"model" : "m","tools":[{"a":"}]\""}],"x": 1e5,"max_tokens":5,"s":"\\"}`},
		"replace": {[]Edit{{"max_tokens", []byte("1")}}, `{"model" : "m","tools":[{"a":"}]\""}],"x": 1e5,"max_tokens":1,"s":"\\"}`},
		"remove":  {[]Edit{{"tools", nil}, {"none", nil}}, `{"model" : "m","x": 1e5,"max_tokens":5,"s":"\\"}`},
		"add":     {[]Edit{{"new", []byte("[]")}}, `{"model" : "m","tools":[{"a":"}]\""}],"x": 1e5,"max_tokens":5,"s":"\\","new":[]}`},
	} {
		if got := string(b.With(c.edits...)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	if got := string(parsed(t, "{}").With(Edit{"a", []byte("1")})); got != `{"a":1}` {
		t.Errorf("of an empty object: %s", got)
	}
}

func TestBodyRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a list": "[]", "a text": `"x"`, "cut": `{"a":1`, "more": "{} {}",
		"twice": `{"a":1,"a":2}`, "twice, escaped": `{"a":1,"\u0061":2}`, "twice, in capitals": `{"a":1,"A":2}`,
	} {
		if _, err := ParseBody([]byte(text)); err == nil || err.Status != 400 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A client does not get kv_transfer_params past a look by spelling it otherwise.
func TestBodyHasInAnySpelling(t *testing.T) {
	for text, want := range map[string]bool{
		`{"kv_transfer_params":{}}`:        true,
		`{"kv_transfer_params":0}`:         true,
		`{"KV_Transfer_Params":{}}`:        true,
		`{"\u006bv_transfer_params":{}}`:   true,
		"{\"\u212av_transfer_params\":{}}": true, // the Kelvin sign, which Go folds to k
		"{\"kv_tran\u017ffer_params\":{}}": true, // the long s
		`{"kv_transfer_params":null}`:      false,
		`{"x":{"kv_transfer_params":1}}`:   false,
	} {
		if got := parsed(t, text).Has("kv_transfer_params"); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func anyJSON(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 4
		if depth > 0 {
			kinds = 6
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return rapid.String().Draw(t, "text")
		case 1:
			return rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 3:
			return nil
		case 4:
			return rapid.SliceOfN(anyJSON(depth-1), 0, 4).Draw(t, "list")
		}
		return rapid.MapOfN(rapid.StringMatching(`[a-z"\\é{}\[\],:]{0,6}`), anyJSON(depth-1), 0, 4).Draw(t, "object")
	})
}

// An edited body means what the edited object would.
func TestEditsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.StringMatching(`[a-z"\\é{},:]{0,4}`), anyJSON(3), 0, 6).Draw(t, "object")
		raw, err := json.MarshalIndent(object, " ", rapid.SampledFrom([]string{"", "\t"}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(object)
		var edits []Edit
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "dd"}), rapid.ID).Draw(t, "names") {
			edit := Edit{Name: name}
			delete(want, name)
			if rapid.Bool().Draw(t, "replace") {
				want[name] = "new"
				edit.Value = []byte(`"new"`)
			}
			edits = append(edits, edit)
		}
		var got map[string]any
		if err := json.Unmarshal(parsed(t, string(raw)).With(edits...), &got); err != nil {
			t.Fatal(err)
		}
		var normal map[string]any
		text, _ := json.Marshal(want)
		if err := json.Unmarshal(text, &normal); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(normal, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// No bytes, however broken, make the scanner leave them.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(`{"choices":[{"delta":{"content":"x"},"token_ids":[1,2]}],"meridian":{}}`))
	f.Add([]byte(`{"a":"\`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Chunk
		isObject := c.Parse(data)
		out := c.Without(true)
		if isObject && json.Valid(data) && !json.Valid(out) {
			t.Errorf("%q became %q", data, out)
		}
	})
}
