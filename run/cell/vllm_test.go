package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// playPython acts as the interpreter of a virtual environment: it tells what
// packages there are, or runs a `vllm`. Beside it stand the other parts.
func playPython(args []string) {
	switch {
	case args[0] == "-c":
		fmt.Println(os.Getenv("MERIDIAN_FAKE_PACKAGES"))
		os.Exit(0)
	case args[0] == "follower":
		if os.Getenv("MERIDIAN_FAKE_STUBBORN") != "" {
			signal.Ignore(syscall.SIGTERM)
		}
		select {}
	case filepath.Base(args[0]) == "vllm":
		playVLLM(args)
	default:
		play(args)
	}
}

// playVLLM serves its health, and has a follower.
func playVLLM(args []string) {
	name := filepath.Base(flagOf(args, "--port"))
	var transfer struct {
		Engine string `json:"engine_id"`
		Extra  struct {
			State string `json:"state_dir"`
		} `json:"kv_connector_extra_config"`
	}
	if err := json.Unmarshal([]byte(flagOf(args, "--kv-transfer-config")), &transfer); err == nil {
		name = transfer.Engine
		chronicle(transfer.Extra.State, "start "+name+" "+os.Getenv("VLLM_CPU_KVCACHE_SPACE")+os.Getenv("HF_HUB_OFFLINE"))
	}
	habit, _ := os.ReadFile(filepath.Join(transfer.Extra.State, "habit-"+name))
	fmt.Println("(APIServer) I am", name)
	if string(habit) == "silent" {
		select {}
	}
	follower := exec.Command(os.Args[0], "follower") // as vLLM's engine core: it does not notice the first one's death
	if err := follower.Start(); err != nil {
		os.Exit(1)
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	listener, err := net.Listen("tcp", net.JoinHostPort(flagOf(args, "--host"), flagOf(args, "--port")))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, someMetrics) })
	go func() { _ = http.Serve(listener, mux) }()
	<-told
	os.Exit(0)
}

const someMetrics = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.234e+03
vllm:generation_tokens_total{engine="0",model_name="m"} 56.0
vllm:meridian_handoff_tokens_sum{engine="0",model_name="m"} 640.0
vllm:meridian_handoff_tokens_created{engine="0",model_name="m"} 1.7947540621081762e+09
vllm:cache_config_info{block_size="32",num_gpu_blocks="1000",num_gpu_blocks_override="None"} 1.0
vllm:odd NaN
`

// fakeVenv is a virtual environment whose interpreter is this test.
func fakeVenv(t *testing.T, packages string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "bin", "python")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "vllm"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(playing, "python")
	t.Setenv("MERIDIAN_FAKE_PACKAGES", packages)
	return dir
}

const allPackages = `{"vllm": true, "version": "0.32.0", "connector": true}`

// vllmStage is a stage whose workers are fakes of vLLM.
func vllmStage(t *testing.T) *stage {
	t.Helper()
	found, err := FindVLLM(t.Context(), fakeVenv(t, allPackages))
	if err != nil {
		t.Fatal(err)
	}
	found.Args = []string{"--enforce-eager"}
	s := newStage(t)
	model := t.TempDir()
	s.options.Spec = DefaultVLLMSpec()
	s.options.Spec.Model, s.options.Spec.ServedName, s.options.Spec.VLLM = model, "m", found
	s.options.Environment = []string{playing + "=python", "GORACE=atexit_sleep_ms=0"}
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	found.First = probe.Addr().String() // other tests look for ports too
	probe.Close()
	return s
}

func TestServersOfVLLM(t *testing.T) {
	t.Setenv("VLLM_CPU_KVCACHE_SPACE", "3") // the operator's environment has the last word
	s := vllmStage(t)
	s.options.Spec.Decode.TP = 2
	s.options.Spec.VLLM.Governed = []string{"--scheduler-cls", "meridian.vllm.Scheduler"}
	c := s.open()
	for name, role := range map[string]string{"prefill-0": "kv_both", "decode-0": "kv_consumer"} {
		p := c.Record().Part(name)
		if p == nil || p.State != Ready || p.Engine != EngineVLLM || p.URL == "" {
			t.Fatalf("%s: %+v", name, p)
		}
		kind := string(p.Kind)
		want := map[string]any{
			"kv_connector": "Connector", "kv_connector_module_path": "meridian.vllm", "kv_role": role, "engine_id": name, "kv_load_failure_policy": "recompute",
			"kv_connector_extra_config": map[string]any{"state_dir": s.options.StateDir, "agent": kind, "url": p.URL, "role": kind},
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(flagOf(p.Args, "--kv-transfer-config")), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
		if flagOf(p.Args, "--served-model-name") != "m" || flagOf(p.Args, "--block-size") != "32" || p.Args[len(p.Args)-1] != "--enforce-eager" {
			t.Errorf("%s: %v", name, p.Args)
		}
		if flagOf(p.Args, "--scheduler-cls") != "meridian.vllm.Scheduler" {
			t.Errorf("%s: %v", name, p.Args)
		}
		if tp := flagOf(p.Args, "--tensor-parallel-size"); (tp == "2") != (name == "decode-0") {
			t.Errorf("%s: %v", name, p.Args)
		}
	}
	if got := s.chronicle(); !slices.Contains(got, "start prefill-0 31") || !slices.Contains(got, "start decode-0 31") {
		t.Errorf("cache space and HF_HUB_OFFLINE: %v", got)
	}
	status, err := ReadStatus(t.Context(), s.options.StateDir)
	if err != nil || !status.AllUp {
		t.Fatalf("%+v, %v", status, err)
	}
	for _, p := range status.Parts {
		if e := p.Stats; p.Engine == EngineVLLM && (e.Running != 3 || e.Waiting != 4 || e.Blocks.Total != 1000 || e.Blocks.Free != 750 || e.Tokens.Prompt != 1234) {
			t.Errorf("%+v", e)
		}
	}
	if tokens, err := c.HandedTokens(t.Context()); err != nil || tokens != 640 {
		t.Errorf("%d, %v", tokens, err)
	}
	plan, err := c.Spec().Alone("alone")
	if err != nil || slices.Contains(plan.Args, "--kv-transfer-config") || slices.Contains(plan.Args, "--scheduler-cls") {
		t.Fatalf("%+v, %v", plan, err)
	}
	if alone, err := c.Add(t.Context(), plan); err != nil || alone.URL == c.Record().Part("decode-0").URL {
		t.Errorf("%+v, %v", alone, err)
	}
}

// What a killed server leaves behind goes with it, and it comes back.
func TestServerThatDiesTakesItsFollowersAlong(t *testing.T) {
	t.Setenv("MERIDIAN_FAKE_STUBBORN", "yes")
	s := vllmStage(t)
	c := s.open()
	before := *c.Record().Part("decode-0")
	followers, err := before.Process.followers()
	if err != nil || len(followers) != 1 {
		t.Fatalf("%v, %v", followers, err)
	}
	if err := syscall.Kill(before.Process.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await("decode-0", Pausing)
	if followers[0].Alive() && !followers[0].wait(t.Context(), time.Minute) {
		t.Errorf("%+v still runs", followers[0])
	}
	s.await("decode-0", Ready)
	if after := c.Record().Part("decode-0"); after.URL != before.URL {
		t.Errorf("it came back at %s, was at %s", after.URL, before.URL)
	}
}

// A cell that was killed, with the first process of its server: the next one
// ends what stayed.
func TestFollowersOfTheDeadAreFound(t *testing.T) {
	s := vllmStage(t)
	plan, err := s.options.Spec.Alone("alone")
	if err != nil {
		t.Fatal(err)
	}
	leader := exec.Command(plan.Command[0], append(plan.Command[1:], plan.Args...)...)
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := identify(leader.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	healthy, done := plan.watchHealth()
	<-healthy
	done()
	_ = leader.Process.Kill()
	_ = leader.Wait() // it was killed
	r := Record{Version: recordVersion, Parts: []PartRecord{{Name: "alone", Kind: Both, Process: &id}}}
	if err := r.write(s.options.StateDir); err != nil {
		t.Fatal(err)
	}
	left, err := cleanUp(t.Context(), s.options.StateDir)
	if err != nil || !slices.Equal(left.Parts, []string{"alone"}) {
		t.Errorf("%+v, %v", left, err)
	}
	if family, err := id.family(); err != nil || len(family) != 0 {
		t.Errorf("%v still run, %v", family, err)
	}
}

func TestServerThatNeverServesIsNotWaitedForForever(t *testing.T) {
	s := vllmStage(t)
	s.habit("prefill-0", "silent")
	s.options.Spec.VLLM.Patience = enough
	_, err := Open(t.Context(), s.options)
	if err == nil || !strings.Contains(err.Error(), "prefill-0 was not ready after 10s; the end of its log:\n  (APIServer) I am prefill-0") {
		t.Fatal(err)
	}
}

func TestFindVLLM(t *testing.T) {
	for name, c := range map[string]struct{ packages, why, fix string }{
		"no connector": {`{"vllm": true, "version": "0.32.0", "connector": false}`, "has vLLM 0.32.0, but not Meridian's connector", "-m pip install ./python"},
		"no vLLM":      {`{"vllm": false, "version": "", "connector": true}`, "has no package vllm", "--venv DIR"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := FindVLLM(t.Context(), fakeVenv(t, c.packages))
			var none *NoVLLMError
			if !errors.As(err, &none) || !strings.Contains(err.Error(), c.why) || !strings.Contains(none.Hint(), c.fix) {
				t.Errorf("%v; %+v", err, none)
			}
		})
	}
	if _, err := FindVLLM(t.Context(), fakeVenv(t, "no JSON")); err == nil || !strings.Contains(err.Error(), `says "no JSON\n" of its packages`) {
		t.Error(err)
	}
	_, err := FindVLLM(t.Context(), t.TempDir())
	var none *NoVLLMError
	if !errors.As(err, &none) || !strings.Contains(none.Hint(), "make vllm") {
		t.Error(err)
	}
}

// The active environment comes first, then what make vllm made, then PATH.
func TestWhereVLLMIsLookedFor(t *testing.T) {
	active, onPath := fakeVenv(t, allPackages), fakeVenv(t, allPackages)
	t.Chdir(t.TempDir())
	t.Setenv("VIRTUAL_ENV", "")
	t.Setenv("PATH", "")
	if _, err := FindVLLM(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "nor in .peers/vllm, nor on PATH") {
		t.Error(err)
	}
	t.Setenv("PATH", filepath.Join(onPath, "bin"))
	if v, err := FindVLLM(t.Context(), ""); err != nil || v.Program != filepath.Join(onPath, "bin", "vllm") || v.Version != "0.32.0" {
		t.Errorf("%+v, %v", v, err)
	}
	if err := os.Mkdir(".peers", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fakeVenv(t, allPackages), ".peers/vllm"); err != nil {
		t.Fatal(err)
	}
	if v, err := FindVLLM(t.Context(), ""); err != nil || !strings.HasSuffix(v.Program, ".peers/vllm/bin/vllm") {
		t.Errorf("%+v, %v", v, err)
	}
	t.Setenv("VIRTUAL_ENV", active)
	if v, err := FindVLLM(t.Context(), ""); err != nil || v.Program != filepath.Join(active, "bin", "vllm") {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestVLLMChoosesItsLayout(t *testing.T) {
	s := DefaultVLLMSpec()
	s.Model, s.VLLM = "m", &VLLM{Python: "p", Program: "v"}
	if err := s.validate(); err != nil {
		t.Error(err)
	}
	s.Decode.Layout = "LBNHC"
	if err := s.validate(); err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Error(err)
	}
}
