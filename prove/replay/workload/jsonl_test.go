package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const header = `{"schema":"meridian.workload/1","label":"mine","licence":"MIT","prefix_tokens":16}` + "\n"

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFile(t *testing.T) {
	path := write(t, "mine.jsonl", header+
		`{"at_us":1000,"prompt":40,"output":3,"prefix":[7,9007199254740991,1]}`+"\n"+
		` { "output" : 5 , "think":8,"converged":2, "tenant":3 ,"prompt":1,"at_us":3000000} `+"\r\n")
	all, info := collect(t, path, Options{})
	want := []Request{
		{At: time.Millisecond, Prompt: 40, Output: 3, Prefix: []uint64{7, 1<<53 - 1, 1}, PrefixTokens: 16},
		{At: 3 * time.Second, Prompt: 1, Think: 8, Converged: 2, Output: 5, Tenant: 3, PrefixTokens: 16},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got %+v", all)
	}
	if info.Label != "mine" || info.Licence != "MIT" || info.Synthetic || info.Tenants != 4 || info.MeanThink != 4 {
		t.Errorf("%+v", info)
	}
}

// Faults are told when a file is opened, with their line.
func TestFileRefuses(t *testing.T) {
	good := `{"at_us":5,"prompt":1,"output":1}` + "\n"
	for content, want := range map[string]string{
		"":                                   "no requests",
		header:                               "no requests",
		good:                                 "line 1",
		`{"schema":"other"}` + "\n" + good:   "line 1: schema",
		`{"schema":"meridian.workload/1"} 1`: "line 1: more after",
		header + good + "\n":                 "line 3: does not begin",
		header + `{"at_us":1,"prompt":1}`:    "line 2: output is missing",
		header + good + `{"at_us":4,"prompt":1,"output":1}`:                                            "line 3: arrives",
		header + `{"at_us":1,"prompt":1,"output":1,"content":2}`:                                       `line 2: unknown member "content"`,
		header + `{"at_us":1,"at_us":1,"prompt":1,"output":1}`:                                         "line 2: at_us stands twice",
		header + `{"at_us":-1,"prompt":1,"output":1}`:                                                  "line 2: at_us: not a whole number",
		header + `{"at_us":1.5,"prompt":1,"output":1}`:                                                 "line 2: at_us: not a whole number",
		header + `{"at_us":1e3,"prompt":1,"output":1}`:                                                 "line 2: at_us: not a whole number",
		header + `{"at_us":01,"prompt":1,"output":1}`:                                                  "line 2: at_us: not a whole number",
		header + `{"at_us":1,"prompt":99999999999999999999999,"output":1}`:                             "line 2: prompt: a number above",
		header + `{"at_us":1,"prompt":0,"output":1}`:                                                   "line 2: prompt is 0",
		header + `{"at_us":1,"prompt":1,"output":0}`:                                                   "line 2: output is 0",
		header + `{"at_us":1,"prompt":1,"output":1,"think":1,"converged":2}`:                           "line 2: converged is 2",
		header + `{"at_us":1,"prompt":1,"output":1,"tenant":65536}`:                                    "line 2: tenant: a number above",
		header + `{"at_us":1,"prompt":16,"output":1,"prefix":[1,2]}`:                                   "line 2: more blocks",
		header + `{"at_us":1,"prompt":16,"output":1,"prefix":[1,]}`:                                    "line 2: prefix: not a whole",
		header + `{"at_us":1,"prompt":16,"output":1,"prefix":[9007199254740992]}`:                      "line 2: prefix: a number above",
		header + `{"at_us":1,"prompt":1,"output":1} x`:                                                 "line 2: more after",
		header + `{"at_us":1,"prompt":1,"output":1`:                                                    "line 2: expected , or }",
		header + `{"at_us":1,"prompt":1,"output":1,"prefix":[` + strings.Repeat("1,", maxLine) + `1]}`: "line 2: longer than",
		`{"schema":"meridian.workload/1"}` + "\n" + `{"at_us":1,"prompt":16,"output":1,"prefix":[1]}`:  "line 2: prefix needs prefix_tokens",
	} {
		_, _, err := Open(write(t, "bad.jsonl", content), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.90q: %v, want %q", content, err, want)
		}
	}
}

func TestWindowAndScale(t *testing.T) {
	content := header
	for i := range 10 {
		content += fmt.Sprintf(`{"at_us":%d,"prompt":1,"output":1}`+"\n", i*1_000_000)
	}
	path := write(t, "ten.jsonl", content)
	all, info := collect(t, path, Options{Start: 2 * time.Second, Duration: 2 * time.Second, Scale: 2})
	if len(all) != 4 || all[0].At != 0 || all[3].At != 1500*time.Millisecond || info.Duration != 1500*time.Millisecond {
		t.Errorf("%+v %+v", all, info)
	}
	all, _ = collect(t, path, Options{Scale: 0.5})
	if len(all) != 10 || all[9].At != 18*time.Second {
		t.Errorf("%+v", all)
	}
}

// What is written is read back, and any reader of JSON agrees.
func TestWriterRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var out bytes.Buffer
		w, err := NewWriter(&out, Header{Label: "a label", PrefixTokens: 16})
		if err != nil {
			rt.Fatal(err)
		}
		var want []Request
		var at time.Duration
		for range rapid.IntRange(1, 8).Draw(rt, "requests") {
			at += time.Duration(rapid.IntRange(0, 1e9).Draw(rt, "µs")) * time.Microsecond
			r := Request{
				At: at, Prompt: rapid.Int32Range(1, maxTokens).Draw(rt, "prompt"), Think: rapid.Int32Range(0, maxTokens).Draw(rt, "think"),
				Output: rapid.Int32Range(1, maxTokens).Draw(rt, "output"), Tenant: rapid.Int32Range(0, maxTenants-1).Draw(rt, "tenant"), PrefixTokens: 16,
			}
			r.Converged = rapid.Int32Range(min(1, r.Think), r.Think).Draw(rt, "converged")
			r.Prefix = rapid.SliceOfN(rapid.Uint64Range(0, maxNumber), 0, min(20, int(r.Prompt+15)/16)).Draw(rt, "prefix")
			if len(r.Prefix) == 0 {
				r.Prefix = nil
			}
			want = append(want, r)
			if err := w.Write(r); err != nil {
				rt.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			rt.Fatal(err)
		}
		for line := range bytes.Lines(out.Bytes()) {
			if !json.Valid(line) {
				rt.Fatalf("not JSON: %s", line)
			}
		}
		if got, _ := collect(t, write(t, "out.jsonl", out.String()), Options{}); !reflect.DeepEqual(got, want) {
			rt.Fatalf("got %+v\nwant %+v", got, want)
		}
	})
}

func TestWriterRefuses(t *testing.T) {
	w, err := NewWriter(&bytes.Buffer{}, Header{PrefixTokens: 16})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(Request{At: 5, Prompt: 1, Output: 1}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Request{
		{At: 4, Prompt: 1, Output: 1}, {At: 6, Output: 1}, {At: 6, Prompt: 1}, {At: 6, Prompt: 99, Output: 1, Prefix: []uint64{1}, PrefixTokens: 8},
	} {
		if err := w.Write(r); err == nil {
			t.Errorf("wrote %+v", r)
		}
	}
}

// The parser takes nothing that is not JSON, and never more than it may.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"at_us":1,"prompt":16,"output":1,"prefix":[1,2],"tenant":3}`))
	f.Add([]byte(` {"at_us" : 0 , "prompt":1,"output":1} `))
	f.Fuzz(func(t *testing.T, line []byte) {
		parse := fileParser(&Info{})
		if _, err := parse([]byte(strings.TrimSpace(header)), 1, nil); err != nil {
			t.Fatal(err)
		}
		var r Request
		if _, err := parse(line, 2, &r); err != nil {
			return
		}
		var other struct {
			At_us, Prompt, Think, Output, Tenant, Converged int64
			Prefix                                          []uint64
		}
		if err := json.Unmarshal(line, &other); err != nil {
			t.Fatalf("took %q, which is not JSON: %v", line, err)
		}
		if other.At_us != r.At.Microseconds() || other.Prompt != int64(r.Prompt) || other.Output != int64(r.Output) || len(other.Prefix) != len(r.Prefix) {
			t.Fatalf("read %+v of %q", r, line)
		}
	})
}

// TestMooncakeByPath opens a trace of Mooncake's that lies anywhere: it has no header.
func TestMooncakeByPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conversation.jsonl")
	trace := `{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}` + "\n" +
		`{"timestamp": 2000, "input_length": 600, "output_length": 7, "hash_ids": [0, 2]}` + "\n"
	if err := os.WriteFile(path, []byte(trace), 0o600); err != nil {
		t.Fatal(err)
	}
	source, info, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if !strings.Contains(info.Label, "Mooncake") || info.Sample {
		t.Errorf("it is %+v", info)
	}
	if _, more := source.Next(); !more {
		t.Fatal(source.Err())
	}
	q, more := source.Next()
	if !more || q.At != 2*time.Second || q.Prompt != 600 || q.Output != 7 || q.PrefixTokens != 512 || len(q.Prefix) != 2 || q.Prefix[1] != 2 {
		t.Errorf("the second request is %+v", q)
	}
}
