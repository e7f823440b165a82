package serving

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/kv"
	"meridian/prove/bench"
	"meridian/run/cell"
)

// The test binary plays the other processes too.
func TestMain(m *testing.M) {
	if os.Getenv(fakeVLLM) != "" && len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		playVLLM(os.Args[1:])
	}
	goleak.VerifyTestMain(m)
}

// fakeVLLM has this test play vLLM and the parts of a cell.
const fakeVLLM = "MERIDIAN_FAKE_VLLM"

func argument(args []string, name string) string {
	for i, arg := range args[:len(args)-1] {
		if arg == name {
			return args[i+1]
		}
	}
	return ""
}

// playVLLM is a server, a gateway, or a part that does nothing. Gateways answer
// by themselves; servers count what was handed over.
func playVLLM(args []string) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	listen, line := "127.0.0.1:0", ""
	switch args[0] {
	case "directory":
		line = "directory ready at nowhere"
	case "agent":
		line = "agent " + argument(args, "--name") + " ready"
	case "gateway":
		line = "gateway ready at http://ADDRESS, admin at http://ADDRESS"
	default:
		listen = net.JoinHostPort(argument(args, "--host"), argument(args, "--port"))
		if strings.Contains(argument(args, "--kv-transfer-config"), "Nixl") {
			fmt.Println("ImportError: no NIXL today")
			os.Exit(1)
		}
	}
	socket, err := net.Listen("tcp", listen)
	if err != nil {
		os.Exit(1)
	}
	go func() { _ = http.Serve(socket, fakeServing(argument(args, "--state"))) }()
	fmt.Println(strings.ReplaceAll(line, "ADDRESS", socket.Addr().String()))
	<-told
	os.Exit(0)
}

func fakeServing(state string) http.Handler {
	mux := http.NewServeMux()
	var asked atomic.Int64
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"engines": workersOf(state)})
	})
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "vllm:meridian_handoff_tokens_sum{engine=\"0\"} %d\n", 100*asked.Add(1))
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Prompt []uint32 `json:"prompt"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		for i := range vllmAnswer {
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"\",\"token_ids\":[%d]}]}\n\n", body.Prompt[i])
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	return mux
}

// workersOf is what the gateway of a cell knows; servers know of none.
func workersOf(state string) (engines []map[string]any) {
	record, err := cell.ReadRecord(state)
	if err != nil {
		return nil
	}
	for _, p := range record.Parts {
		engines = append(engines, map[string]any{"url": p.URL, "up": true})
	}
	return engines
}

// The whole course with servers that only pretend: everything is started, asked
// and stopped, and a peer that does not start is told of.
func TestRunVLLM(t *testing.T) {
	t.Setenv(fakeVLLM, "yes")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := probe.Addr().String()
	probe.Close()
	packages := filepath.Join(t.TempDir(), "peers")
	if err := os.MkdirAll(filepath.Join(packages, "nixl/lib/python3/site-packages/nixl_cu12"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := VLLMOptions{
		VLLM: &cell.VLLM{Python: self, Program: "vllm", Version: "0.0", First: first}, Setting: bench.Setting{Program: self}, Shape: "tiny", Tokens: []int{64, 128}, Requests: 2, Rounds: 2,
		Peers: []string{"auto"}, PeersDir: packages, scratch: t.TempDir(),
	}
	report, err := RunVLLM(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 6 || len(report.Absent) != 1 || !strings.Contains(text.String(), "NixlConnector is absent: nixl-prefill ended before it was ready: exit status 1") {
		t.Errorf("%+v\n%s", report.Absent, text.String())
	}
	for _, row := range report.Rows {
		// Each look at a server's metrics counts 100 more: so much was "handed over" in each turn.
		if want := int64(100 * 2048 / 2); row.Route != alone && (row.Bytes != want || row.AddedP50 == nil || row.CPUSecondsPerGB == nil || row.Different != 0) {
			t.Errorf("%+v, want %d bytes", row, want)
		}
	}
	o.Peers = []string{"nixl"}
	if _, err := RunVLLM(t.Context(), o); !errors.Is(err, bench.ErrPeer) || !strings.Contains(err.Error(), "no NIXL today") {
		t.Errorf("a peer that was asked for and is not there: %v", err)
	}
	if left, _ := filepath.Glob(o.scratch + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestVLLMOptions(t *testing.T) {
	good := VLLMOptions{VLLM: &cell.VLLM{}, Shape: "tiny", Tokens: []int{128}, Requests: 1, Rounds: 1, Peers: []string{"none"}}
	if _, err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*VLLMOptions){
		"no rounds": func(o *VLLMOptions) { o.Rounds = 0 }, "no requests": func(o *VLLMOptions) { o.Requests = 0 }, "no prompts": func(o *VLLMOptions) { o.Tokens = nil },
		"less than a block": func(o *VLLMOptions) { o.Tokens = []int{32} }, "too long": func(o *VLLMOptions) { o.Tokens = []int{1 << 20} },
		"odd shape": func(o *VLLMOptions) { o.Shape = "layers=x" }, "odd peer": func(o *VLLMOptions) { o.Peers = []string{"smoke"} }, "no vLLM": func(o *VLLMOptions) { o.VLLM = nil },
	} {
		o := good
		change(&o)
		if _, err := o.validate(); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVLLMRow(t *testing.T) {
	ms := time.Millisecond
	single := []turn{
		{firsts: []time.Duration{10 * ms, 20 * ms}, tokens: [][]uint32{{1}, {2}}, cpu: 100 * ms},
		{firsts: []time.Duration{30 * ms, 40 * ms}, tokens: [][]uint32{{3}, {4}}, cpu: 100 * ms},
	}
	handed := []turn{
		{firsts: []time.Duration{15 * ms, 25 * ms}, tokens: [][]uint32{{1}, {2}}, cpu: 150 * ms, handed: 1000},
		{firsts: []time.Duration{35 * ms, 49 * ms}, tokens: [][]uint32{{3}, {5}}, cpu: 150 * ms, handed: 1000},
	}
	r := newVLLMReport(VLLMOptions{VLLM: &cell.VLLM{}}, kv.Uniform(4, kv.Layer{KVHeads: 2, HeadDim: 32}, kv.Float32))
	r.add(500, map[string][]turn{alone: single, meridian: handed})
	if got := r.Rows[0]; got.TTFTP99 != 40 || got.AddedP50 != nil || got.Bytes != 0 {
		t.Errorf("alone: %+v", got)
	}
	got := r.Rows[1]
	// The differences are 5, 5, 5 and 9 ms; 500 tokens of 2048 bytes each time.
	if *got.AddedP50 != 5 || *got.AddedP99 != 9 || got.Bytes != 1024000 || *got.BytesPerSecond != 204800000 || *got.CPUSecondsPerGB != bench.Rounded(0.1/4096000*1e9) {
		t.Errorf("%+v: added %v %v, %v B/s, %v s/GB", got, *got.AddedP50, *got.AddedP99, *got.BytesPerSecond, *got.CPUSecondsPerGB)
	}
	if err := r.wrong(); got.Different != 1 || !errors.Is(err, ErrMeasure) {
		t.Errorf("one answer has other tokens: %+v, %v", got, err)
	}
}

func TestAskFirstRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"an error":       {500, "broken"},
		"an error event": {200, "data: {\"error\":{\"message\":\"lost\"}}\n\ndata: [DONE]\n\n"},
		"a short answer": {200, "data: {\"choices\":[{\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n"},
		"a cut stream":   {200, "data: {\"choices\":[{\"token_ids\":[1,2,3,4]}]}\n\n"},
		"no JSON":        {200, "data: hello\n\n"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		if _, err := Ask(t.Context(), server.URL, []uint32{1}, vllmAnswer); err == nil {
			t.Errorf("%s was taken for an answer", name)
		}
		asking.CloseIdleConnections()
		server.Close()
	}
}

func TestWriteModel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	g := kv.Uniform(2, kv.Layer{KVHeads: 2, HeadDim: 32}, kv.Float32)
	if err := writeModel(dir, g, 100); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint64(file)
	var header map[string]struct {
		Shape       []int `json:"shape"`
		DataOffsets []int `json:"data_offsets"`
	}
	if err := json.Unmarshal(file[8:8+length], &header); err != nil {
		t.Fatal(err)
	}
	keys := header["model.layers.1.self_attn.k_proj.weight"]
	if len(keys.Shape) != 2 || keys.Shape[0] != 64 || keys.DataOffsets[1]-keys.DataOffsets[0] != 4*64*modelHidden || len(header) != 2*9+4 {
		t.Errorf("%+v, %d tensors", keys, len(header))
	}
	if last := header["lm_head.weight"].DataOffsets[1]; uint64(last)+8+length != uint64(len(file)) || length%8 != 0 {
		t.Errorf("%d bytes of weights in a file of %d", last, len(file))
	}
	for name, g := range map[string]kv.Geometry{
		"bf16":   kv.Uniform(2, kv.Layer{KVHeads: 2, HeadDim: 32}, kv.BFloat16),
		"window": kv.Uniform(2, kv.Layer{KVHeads: 2, HeadDim: 32, WindowTokens: 8}, kv.Float32),
	} {
		if err := writeModel(filepath.Join(t.TempDir(), "m"), g, 100); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestByteTokenizerHasEveryByteOnce(t *testing.T) {
	vocabulary := byteTokenizer()["model"].(map[string]any)["vocab"].(map[string]int)
	if len(vocabulary) != modelWords || vocabulary["A"] != firstByteToken+'A' || vocabulary["Ġ"] != firstByteToken+' ' {
		t.Errorf("%d words, A is %d, the blank %d", len(vocabulary), vocabulary["A"], vocabulary["Ġ"])
	}
}
