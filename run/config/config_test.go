package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/decide/phase"
	"meridian/engine/token"
	"meridian/kv"
)

func defaults(t *testing.T) *Loaded {
	t.Helper()
	l, err := Load(Options{Dir: t.TempDir(), Home: t.TempDir(), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The structs that Go code reads and the schema that everything else comes from
// must name the same fields with the same types.
func TestStructsMatchTheSchema(t *testing.T) {
	types := map[Kind]any{
		Bool: false, Int: int64(0), Float: 0.0, Text: "", Enum: "", Size: Bytes{},
		Tokens: []uint32(nil), Texts: []string(nil), Enums: []string(nil), Endpoint: "", Listen: "", UserIDs: []uint32(nil), Publisher: "", Paths: []string(nil),
	}
	want := make(map[string]reflect.Type)
	for _, s := range Schema() {
		for _, f := range s.Fields {
			want[s.Name+"."+f.Name] = reflect.TypeOf(types[f.Kind])
		}
	}
	got := make(map[string]reflect.Type)
	var walk func(reflect.Type, string)
	walk = func(structure reflect.Type, prefix string) {
		for i := range structure.NumField() {
			f := structure.Field(i)
			path := prefix + f.Tag.Get("toml")
			switch {
			case f.Tag.Get("toml") == "-":
			case f.Type.Kind() == reflect.Map || f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
				walk(f.Type.Elem(), path+".")
			case f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Bytes]():
				walk(f.Type, path+".")
			default:
				got[path] = f.Type
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
		t.Error(diff)
	}
}

func TestEveryFieldIsDescribedAndItsDefaultIsValid(t *testing.T) {
	for _, s := range Schema() {
		if s.Doc == "" {
			t.Errorf("%s has no text", s.header())
		}
		for _, f := range s.Fields {
			path := s.Name + "." + f.Name
			if f.Doc == "" || f.Kind.String() == "" {
				t.Errorf("%s has no text or kind", path)
			}
			if f.Default == nil {
				if !s.many() {
					t.Errorf("%s has no default", path)
				}
				continue
			}
			if _, problems := f.check(asRead(f.Default)); len(problems) > 0 {
				t.Errorf("the default of %s is refused: %s", path, problems[0].reason)
			}
		}
	}
}

// The numbers of the Meridian book, as corrected.
func TestDefaults(t *testing.T) {
	want := &Config{
		Scheduler: Scheduler{Policy: "meridian", PreemptMaxFraction: 0.1, ThinkTPOTBudgetMs: 80, OutputTPOTBudgetMs: 20, ThinkBatchMultiplier: 2.5, MaxThinkTokens: 32768, MinThinkTokens: 512},
		Entropy: Entropy{
			Enabled: true, EMAAlpha: 0.05, RPDIThreshold: 3, EATEMAVarianceThreshold: 0.001,
			TransitionEntropyThreshold: 2.5, EATProbeIntervalTokens: 32,
		},
		KVMemory:  KVMemory{ThinkPhaseMemoryFraction: 0.4, BlockSize: Bytes{Auto: true}, Capacity: Bytes{Auto: true}},
		Disagg:    Disagg{Fabric: "none", OffloadThresholdBlocks: 4},
		Model:     map[string]Model{},
		Agent:     Agent{Name: "auto", Fabrics: []string{"host", "file", "tcp"}, Listen: "127.0.0.1:0", Advertise: "auto", MaxStrangers: 256, HandshakeTimeoutMs: 5000, MaxGrants: 65536, StateDir: "auto"},
		Door:      Door{AllowUIDs: []uint32{}},
		TLS:       TLS{Mode: "auto", CA: "auto", Cert: "auto", Key: "auto"},
		Directory: Directory{Endpoint: "auto", Prefix: "meridian"},
		Governor:  Governor{Enabled: true, WaitUs: 500},
		Gateway: Gateway{
			Listen: "127.0.0.1:8080", AdminListen: "127.0.0.1:0", AdminKeyFile: "none", TLSCert: "none", TLSKey: "none", APIKeyFile: "none",
			ProxyPaths: []string{
				"/tokenize", "/detokenize", "/version", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
				"/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
			},
			Resume:             true,
			MoveForBalance:     true,
			DirectPromptTokens: 256, PromiseTokens: 4096, PrefixAffinity: 1, StoredTokenWeight: 0.25, MaxBodyBytes: 8 << 20, MaxBodyMemoryBytes: 512 << 20, MaxRunning: 1024, MaxWaiting: 1024, QueueTimeoutMs: 30_000,
			ClientTimeoutMs: 10_000, PrefillTimeoutMs: 120_000, FirstTokenTimeoutMs: 120_000, AnswerTimeoutMs: 600_000, StallTimeoutMs: 30_000,
			Effort: Effort{Minimal: 0.1, Low: 0.2, Medium: 0.5, High: 0.8, XHigh: 1},
		},
		Store: Store{
			Bytes: 1 << 30, PageBytes: 256 << 10, Master: true, Policy: "lru", HighWatermark: 95, LowWatermark: 85, TenantQuota: 100, WriteTimeoutMs: 30_000, Tenant: "none", BlockTokens: 64, Replicas: 1, FindWaitUs: 300, FindTimeoutMs: 500, KeepBytesInFlight: 256 << 20,
			Disk: StoreDisk{Dir: "none", Bytes: 64 << 30, TimeoutMs: 1000},
			S3:   StoreS3{Endpoint: "none", Bucket: "none", Prefix: "meridian", Region: "us-east-1", Bytes: 1 << 40, TimeoutMs: 2000, RequestsPerSecond: 200},
		},
		Telemetry: Telemetry{PrometheusListen: "127.0.0.1:9464", OTLPEndpoint: "http://127.0.0.1:4318", TraceFraction: 0.01},
		Logging:   Logging{Level: "info", Format: "text"},
	}
	if diff := cmp.Diff(want, defaults(t).Config); diff != "" {
		t.Error(diff)
	}
}

func TestExampleIsTheDefaults(t *testing.T) {
	taken := regexp.MustCompile(`(?m)^#(\w+ = )`).ReplaceAllString(Example(), "$1")
	for text, origin := range map[string]Origin{Example(): Default, taken: FromFile} {
		l, err := Parse("example.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(defaults(t).Config, l.Config); diff != "" {
			t.Error(diff)
		}
		if got := l.Origin("gateway.direct_prompt_tokens"); got != origin {
			t.Errorf("a field comes from %s, want %s", got, origin)
		}
	}
	for _, s := range Schema() {
		for _, f := range s.Fields {
			if !strings.Contains(Example(), f.Name) {
				t.Errorf("the example lacks %s.%s", s.Name, f.Name)
			}
		}
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSearchOrder(t *testing.T) {
	o := Options{Dir: t.TempDir(), Home: t.TempDir(), Environ: []string{}}
	load := func() *Loaded {
		t.Helper()
		l, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := load(); l.File != "" {
		t.Errorf("found %s where there is nothing", l.File)
	}
	file := func(n int) string { return fmt.Sprintf("[scheduler]\nmax_think_tokens = %d\n", n) }
	write(t, filepath.Join(o.Home, ".config", "meridian", "meridian.toml"), file(1001))
	if l := load(); l.Scheduler.MaxThinkTokens != 1001 {
		t.Errorf("home: read %s", l.File)
	}
	write(t, filepath.Join(o.Dir, "meridian.toml"), file(1002))
	if l := load(); l.Scheduler.MaxThinkTokens != 1002 {
		t.Errorf("working directory: read %s", l.File)
	}
	o.Path = write(t, filepath.Join(t.TempDir(), "mine.toml"), file(1003))
	if l := load(); l.Scheduler.MaxThinkTokens != 1003 || l.File != o.Path {
		t.Errorf("named: read %s", l.File)
	}
	o.Environ = []string{"MERIDIAN_SCHEDULER_MAX_THINK_TOKENS=1004", "PATH=x", "MERIDIAN_REQUIRE=cc"}
	if l := load(); l.Scheduler.MaxThinkTokens != 1004 || l.Origin("scheduler.max_think_tokens") != FromEnvironment {
		t.Errorf("environment: read %d", l.Scheduler.MaxThinkTokens)
	}
	o.Path = ""
	o.Environ = []string{"MERIDIAN_CONFIG=" + write(t, filepath.Join(t.TempDir(), "theirs.toml"), file(1005))}
	if l := load(); l.Scheduler.MaxThinkTokens != 1005 {
		t.Errorf("MERIDIAN_CONFIG: read %s", l.File)
	}
	o.Environ = []string{"MERIDIAN_CONFIG=" + filepath.Join(t.TempDir(), "missing.toml")}
	if _, err := Load(o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("MERIDIAN_CONFIG names a file that is missing: %v", err)
	}
	o.Path = filepath.Join(t.TempDir(), "missing.toml")
	if _, err := Load(o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a named file that is missing: %v", err)
	}
	o.Path = write(t, filepath.Join(t.TempDir(), "huge.toml"), strings.Repeat("#", maxFileBytes+1))
	if _, err := Load(o); faultPaths(t, err) != "(syntax)" || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestAHomeThatCannotBeEnteredHoldsNoFile(t *testing.T) {
	o := Options{Dir: t.TempDir(), Home: os.DevNull, Environ: []string{}}
	if l, err := Load(o); err != nil || l.File != "" {
		t.Errorf("a home that is no directory: %v", err)
	}
	if !noneAtHome(&os.PathError{Op: "stat", Path: "x", Err: syscall.EACCES}) {
		t.Error("a home that may not be entered is an error")
	}
	if noneAtHome(nil) || noneAtHome(syscall.EIO) {
		t.Error("a home that cannot be read at all is forgiven")
	}
}

func TestFaultsPointAtTheirPlace(t *testing.T) {
	text := strings.Join([]string{
		"[scheduler]",                       // 1
		"max_think_tokns = 4",               // 2
		"min_think_tokens = 40000",          // 3
		"think_tpot_budget_ms = nan",        // 4
		"[disagg]",                          // 5
		"enabled = true",                    // 6
		"[model.qwen3]",                     // 7
		`think_start_token_ids = [1,`,       // 8
		`  -2]`,                             // 9
		`channel = { open = "a", clos = 1}`, // 10
		"[modle.x]",                         // 11
	}, "\n")
	_, err := Parse("f.toml", []byte(text))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`f.toml:2:1: scheduler.max_think_tokns: unknown field; did you mean max_think_tokens?`,
		`f.toml:3:20: scheduler.min_think_tokens: must be < scheduler.max_think_tokens, which is 32768; got 40000`,
		`f.toml:4:24: scheduler.think_tpot_budget_ms: must be a finite number > 0; got nan`,
		`f.toml:5:2: disagg.fabric: must name a fabric while disagg.enabled is true; use "meridian"; got "none"`,
		`f.toml:9:3: model.qwen3.think_start_token_ids[1]: must be a token id from 0 to 4294967295; got -2`,
		`f.toml:10:11: model.qwen3.channel.answer: must be given, because the other channel fields are`,
		`f.toml:10:11: model.qwen3.channel.close: must be given, because the other channel fields are`,
		`f.toml:10:11: model.qwen3.channel.message: must be given, because the other channel fields are`,
		`f.toml:10:11: model.qwen3.channel.think: must be given, because the other channel fields are`,
		`f.toml:10:25: model.qwen3.channel.clos: unknown field; did you mean close?`,
		`f.toml:11:2: modle: unknown section; did you mean model?`,
	}, "\n")
	if diff := cmp.Diff(want, e.Error()); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(e.Hint(), "config explain scheduler") {
		t.Errorf("hint: %s", e.Hint())
	}
}

func TestRange(t *testing.T) {
	r := above(0).atMost(1)
	for v, want := range map[float64]bool{0: false, 0.5: true, 1: true, 1.01: false, math.Inf(1): false, -1: false} {
		if r.Contains(v) != want {
			t.Errorf("%v in %v: %v", v, r, !want)
		}
	}
	if r.Contains(math.NaN()) || (Range{}).Contains(math.NaN()) {
		t.Error("NaN is in no range")
	}
	if got := above(0).below(1).String(); got != "> 0 and < 1" {
		t.Error(got)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"enabled", "fabric", "offload_threshold_blocks"}
	for typo, want := range map[string]string{
		"enable": "enabled", "fabrics": "fabric", "offload_treshold_block": "offload_threshold_blocks", "zebra": "", "": "",
		"ENABLED": "enabled", "Fabric": "fabric", "f": "", "ab": "",
	} {
		if got := nearest(typo, names); got != want {
			t.Errorf("%q: got %q, want %q", typo, got, want)
		}
	}
	for typo, name := range map[string]string{"foo": "door", "on": "off", "test": "tls"} {
		if nearest(typo, []string{name}) != "" {
			t.Errorf("%s is no %s", typo, name)
		}
	}
}

func TestFaultsDoNotContradictThemselves(t *testing.T) {
	for text, want := range map[string]string{
		"[entropy]\nrpdi_threshold = inf":           "must be a finite number > 1; got inf",
		"[entropy]\nema_alpha = -inf":               "must be a finite number ≥ 0.001 and ≤ 1; got -inf",
		"[entropy]\nema_alpha = 1e300":              "must be ≥ 0.001 and ≤ 1; got 1e+300",
		"[scheduler]\nmax_think_tokens = 1024.0":    "must be an integer; got 1024.0",
		"[gateway]\nmax_running = 1048577":          "must be ≥ 1 and ≤ 1048576; got 1048577",
		"[logging]\nlevel = \"INFO\"":               "; got \"INFO\"; did you mean info?",
		"[tls]\nmode = \"on\"":                      "must be one of \"auto\", \"off\", \"required\"; got \"on\"",
		"[model.m]\nthink_end_token_ids = [1, 2.0]": "must be a token id from 0 to 4294967295; got 2.0",
	} {
		_, err := Parse("f.toml", []byte(text))
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want …%s", text, err, want)
		}
	}
	file := "../../testdata/config/bad/tokenizer-needs-several-ids.toml"
	_, err := Load(Options{Path: file, Environ: []string{}})
	if err == nil || !strings.Contains(err.Error(), `"</think><think>" is several tokens, [8, 7]; leave the ids out; got [8, 7]`) {
		t.Errorf("%s: %v", file, err)
	}
}

func TestHint(t *testing.T) {
	for path, want := range map[string]string{
		"nope": "the sections are scheduler, entropy, ", "model.m.nope": "`meridian config explain model` ",
		"": "`meridian config init` ",
	} {
		if got := (&Error{Faults: []Fault{{Path: path}}}).Hint(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestMarkers(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tokenizer.json"), `{"added_tokens":[{"id":7,"content":"<think>"},{"id":8,"content":"</think>"}],
		"model":{"vocab":{"analysis":3,"final":4}}}`)
	text := `[model.m]
tokenizer = "tokenizer.json"
think_start_texts = ["<think>"]
think_end_texts = ["</think>", "</think><think>"]
`
	l, err := Load(Options{Path: write(t, filepath.Join(dir, "m.toml"), text), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	want := phase.Markers{
		Start: []phase.Marker{{IDs: []uint32{7}, Text: "<think>"}},
		End:   []phase.Marker{{IDs: []uint32{8}, Text: "</think>"}, {IDs: []uint32{8, 7}, Text: "</think><think>"}},
	}
	if diff := cmp.Diff(want, l.Model["m"].Markers); diff != "" {
		t.Error(diff)
	}
}

// letters is a tokenizer.json in which every letter is a token.
func letters(added string) string {
	vocab := []string{`"Ġ": 1`, `"Ċ": 2`}
	for c := 'A'; c <= 'z'; c++ {
		if c != '\\' {
			vocab = append(vocab, fmt.Sprintf("%q: %d", string(c), c))
		}
	}
	vocab = append(vocab, `":": 3`, `"/": 4`)
	return `{"added_tokens": [` + added + `], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {` + strings.Join(vocab, ", ") + `}, "merges": []}}`
}

// What a table says leads to a machine that reads the family's streams.
func TestMarkersAreFollowed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tokenizer.json"), letters(`{"id": 200, "content": "<think>"}, {"id": 201, "content": "</think>"}, {"id": 205, "content": "<|channel|>"},
		{"id": 207, "content": "<|end|>"}, {"id": 208, "content": "<|message|>"}, {"id": 206, "content": "<|start|>"}, {"id": 210, "content": "analysis"},
		{"id": 211, "content": "final"}, {"id": 212, "content": "assistant"}`))
	tokenizer, err := token.OpenTokenizer(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(Options{Path: write(t, filepath.Join(dir, "m.toml"), `
[model.granite]
tokenizer = "tokenizer.json"
think_start_texts = ["Here is my thought process:"]
think_end_texts = ["Here is my response:"]
reasoning_parser = "granite"
[model.gpt_oss]
tokenizer = "tokenizer.json"
channel = { open = "<|channel|>", message = "<|message|>", close = "<|end|>", think = "analysis", answer = "final" }
reasoning_parser = "gpt_oss"
[model.r1]
think_end_token_ids = [201]
reasoning_parser = "deepseek_r1"
[model.qwen3]
tokenizer = "tokenizer.json"
think_start_texts = ["<think>"]
think_end_texts = ["</think>"]
reasoning_parser = "qwen3"
supports_think_disable = true
`), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		model, prompt, stream string
		think                 int // -1: none
	}{
		"granite":        {"granite", "q", "Here is my thought process:abcHere is my response:d", 3},
		"granite, plain": {"granite", "q", "Here is the answer", -1},
		"gpt_oss":        {"gpt_oss", "q", "<|channel|>analysis<|message|>ab<|end|><|start|>assistant<|channel|>final<|message|>c", 2},
		"r1":             {"r1", "q", "ab</think>c", 2},
		"qwen3":          {"qwen3", "q", "<think>ab</think>c", 2},
		"qwen3, told":    {"qwen3", "q /no_think", "<think>ab</think>c", -1},
	} {
		markers := l.Model[c.model].Markers
		model, err := phase.NewModel(markers)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := model.Begin(phase.Prompt{Tokens: tokenizer.Encode(c.prompt)})
		events := m.Step(tokenizer.Encode(c.stream), nil)
		if got := m.Think(); m.Phase() != kv.Output || (len(events) == 0) != (c.think < 0) || got != max(0, c.think) {
			t.Errorf("%s: %v after a thought of %d tokens, %v", name, m.Phase(), got, events)
		}
		// What ends a thought by force does end it.
		m = model.Begin(phase.Prompt{})
		start, _, _ := strings.Cut(c.stream, "ab")
		m.Step(tokenizer.Encode(start), nil)
		if m.Phase() == kv.Think {
			if m.Step(model.Force(), nil); m.Phase() != kv.Output {
				t.Errorf("%s: %v after %v", name, m.Phase(), model.Force())
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add([]byte("[model.m]\nchannel = {open = \"a\"}\nthink_start_token_ids = [1]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse("fuzz.toml", data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || len(e.Faults) == 0 {
				t.Fatalf("%v is not a list of faults", err)
			}
			for _, fault := range e.Faults {
				if fault.Reason == "" || fault.Path != "" && fault.Line == 0 {
					t.Fatalf("a fault without reason or place: %+v", fault)
				}
			}
			return
		}
		if _, err := Parse("again.toml", []byte(l.TOML(true))); err != nil {
			t.Fatalf("what is shown does not read back: %v\n%s", err, l.TOML(true))
		}
	})
}
