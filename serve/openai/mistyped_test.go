package openai

import "testing"

// Clients are told in the words of JSON, never in those of Go.
func TestMistyped(t *testing.T) {
	body, fault := ParseBody([]byte(`{"n":"two","stream":1,"model":[],"seed":1.5,"o":{"deep":"x"}}`))
	if fault != nil {
		t.Fatal(fault)
	}
	var n int
	var stream bool
	var model string
	var seed *int64
	var nested struct {
		Deep int `json:"deep"`
	}
	for _, c := range []struct {
		name string
		into any
		want string
	}{
		{"n", &n, "n: want a whole number, got string"},
		{"stream", &stream, "stream: want true or false, got number"},
		{"model", &model, "model: want a string, got array"},
		{"seed", &seed, "seed: want a whole number, got number 1.5"},
		{"o", &nested, "o.deep: want a whole number, got string"},
	} {
		fault := body.Read(c.name, c.into)
		if fault == nil || fault.Message != c.want || fault.Param == nil || *fault.Param != c.name {
			t.Errorf("%s: %+v, want %q", c.name, fault, c.want)
		}
	}
}
