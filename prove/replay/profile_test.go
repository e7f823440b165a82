package replay

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A profile survives its file, and files that make no engine are refused.
func TestReadProfile(t *testing.T) {
	want := simple()
	want.Source, want.Measured = "by hand", true
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "p.json")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(string(text))
	got, err := FindProfile(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(got); string(again) != string(text) {
		t.Errorf("%s, and then %s", text, again)
	}
	for _, bad := range []struct{ from, to string }{
		{`"step_ns":1000000`, `"step_ns":-1`},
		{`"step_ns":`, `"step":`},
		{`"tokens":1001`, `"tokens":1`},
		{`"blocks":10000`, `"blocks":0`},
		{`"block_tokens":16`, `"block_tokens":0`},
		{`"max_tokens":1000`, `"max_tokens":2000000`},
		{`"max_sequences":64`, `"max_sequences":0`},
		{`"context_ns":0`, `"context_ns":1e99`},
		{`"blocks":10000`, `"blocks":2000000000`},
		{`{`, `[`},
	} {
		changed := strings.Replace(string(text), bad.from, bad.to, 1)
		if changed == string(text) {
			t.Fatalf("%s is not in %s", bad.from, text)
		}
		write(changed)
		if _, err := ReadProfile(file); !errors.Is(err, ErrProfile) {
			t.Errorf("%s for %s: %v", bad.to, bad.from, err)
		}
	}
	if _, err := FindProfile("abacus"); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), "deepseek-r1-8xh200") {
		t.Error(err)
	}
}

// The rooflines, against sums made by hand from the data sheets.
func TestRooflines(t *testing.T) {
	p, err := FindProfile("qwen3-32b-1xh200")
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	near("one token: 65.6 GB at 3.84 TB/s", p.denseNs(1), 65.6/3.84e3*1e9)
	near("8192 tokens: 2·32.8 G·8192 at 593 TFLOPS", p.denseNs(8192), 2*32.8e9*8192/593.4e12*1e9)
	near("a token of context: 256 KiB at 3.84 TB/s", p.ContextNs, 262144/3.84e12*1e9)
	near("tokens of the cache: 57.3 GB", float64(p.Blocks)*16, 57.3e9/262144)
	for _, p := range Profiles() {
		if err := p.validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	r1, err := FindProfile("deepseek-r1-8xh200")
	if err != nil {
		t.Fatal(err)
	}
	near("a token of context: 70,272 bytes on every GPU", r1.ContextNs, 70272/3.84e12*1e9)
	near("many tokens touch all experts: 671 GB at 30.7 TB/s, and 122 all-reduces", r1.denseNs(256)/1e6, 671e9/30.72e12*1e3+122*(0.01+2*7.0/8*256*7168*2/360e9*1e3))
}
