package meridian

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pauses are how often a file of tests sleeps, and why.
type pauses struct {
	count int
	why   string
}

// Why a test may sleep.
const (
	simulated = "a synctest bubble: no time passes, and all that can happen has before it goes on"
	outage    = "how long the fault lasts"
	moment    = "a fault comes at no moment in particular"
	pace      = "how long what a played part does takes"
	load      = "how often a client or a benchmark asks"
)

// sleeping are the tests that sleep. None of them waits for an event: that is what
// channels, synctest and internal/until are for.
var sleeping = map[string]pauses{
	"cmd/meridian/progress_test.go":              {1, simulated},
	"engine/http_time_test.go":                   {1, "a client that reads nothing for a while"},
	"engine/world_test.go":                       {1, simulated},
	"engine/worldclient_test.go":                 {2, simulated},
	"engine/worldmodel_test.go":                  {1, simulated},
	"engine/worldrun_test.go":                    {2, simulated},
	"engine/worldtrouble_test.go":                {5, simulated},
	"internal/until/until_test.go":               {1, simulated},
	"keep/store/disk/bench_test.go":              {1, load},
	"keep/store/disk/soak_test.go":               {3, "how long faults last, and how often clients ask"},
	"keep/store/flood_test.go":                   {1, simulated},
	"keep/store/reader_test.go":                  {1, simulated},
	"keep/store/tier/opening_test.go":            {2, simulated},
	"member/directory/election/election_test.go": {1, simulated},
	"member/directory/etcd/health_test.go":       {1, simulated},
	"member/directory/etcd/etcdserver_test.go":   {2, outage},
	"member/directory/directory_test.go":         {6, simulated},
	"move/agent/cancel_test.go":                  {1, moment},
	"move/fabric/fabrictest/toy_test.go":         {1, pace},
	"move/fabric/fabrictest/toyop_test.go":       {3, pace},
	"move/fabric/host/fence_test.go":             {1, moment},
	"move/fabric/host/process_test.go":           {2, moment},
	"move/fabric/transfer_test.go":               {3, simulated},
	"move/fabric/workers/workers_test.go":        {1, pace},
	"move/transceiver/bench_test.go":             {1, pace},
	"prove/chaos/directory_test.go":              {2, outage},
	"prove/chaos/link_test.go":                   {1, outage},
	"prove/chaos/network_test.go":                {1, outage},
	"prove/chaos/pause_test.go":                  {2, outage},
	"prove/storm/real_test.go":                   {1, "a client that reads a byte a second"},
	"prove/storm/storeclient_test.go":            {1, load},
	"prove/storm/storereal_test.go":              {3, moment},
	"run/node/move_room_test.go":                 {2, pace},
	"run/node/move_test.go":                      {1, pace},
	"run/node/ready_test.go":                     {2, simulated},
	"see/dash/dash_test.go":                      {1, simulated},
	"see/ledger/ledger_test.go":                  {1, simulated},
	"serve/doorstore/slow_test.go":               {2, simulated},
	"serve/gateway/limits_test.go":               {2, "clients that read slowly, or nothing for a while"},
	"serve/gateway/stub_test.go":                 {1, pace},
	"python/tests/test_openai_client.py":         {1, "what was cancelled goes on no more"},
	"python/tests/test_store.py":                 {1, moment},
	"python/tests/vllm/governed_cost.py":         {2, pace},
	"python/tests/vllm/test_chaos.py":            {2, outage},
	"python/tests/vllm/test_gpu_host.py":         {1, moment},
	"python/tests/vllm/test_policy_fail.py":      {1, "what is kept is not freed meanwhile"},
	"python/tests/waiting.py":                    {2, "how Python's tests wait for what becomes true by itself"},
}

// Waiting for something by sleeping is too short on a busy machine and too long on any
// other.
func TestTestsDoNotSleep(t *testing.T) {
	found := make(map[string]int)
	for _, path := range sources(t, "_test.go") {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if n := goSleeps(f); n > 0 {
			found[path] = n
		}
	}
	for _, path := range sources(t, ".py") {
		if n := len(pythonSleep.FindAll(read(t, path), -1)); n > 0 && strings.HasPrefix(path, "python/tests/") {
			found[path] = n
		}
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if n, may := found[path], sleeping[path].count; n > may {
			t.Errorf("%s sleeps %d times, and may %d times: wait for the event, by a channel, synctest or internal/until (in Python tests/waiting.py), or say in this test's table why the pause itself is meant", path, n, may)
		}
	}
	for path, may := range sleeping {
		if n := found[path]; n < may.count {
			t.Errorf("%s sleeps %d times, the table of this test says %d", path, n, may.count)
		}
	}
}

// goSleeps counts what time.Sleep is named.
func goSleeps(f *ast.File) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		if s, is := node.(*ast.SelectorExpr); is && s.Sel.Name == "Sleep" {
			if of, is := s.X.(*ast.Ident); is && of.Name == "time" {
				n++
			}
		}
		return true
	})
	return n
}

// pythonSleep is a pause; asyncio.sleep(0) is none.
var pythonSleep = regexp.MustCompile(`\b(?:time|asyncio)\.sleep\((?:[^0)]|0[^)])`)

func TestSleepsAreSeen(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() { for range 3 { time.Sleep(1) }; g(time.Sleep); time.After(1); other.Sleep(1) }", 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := goSleeps(f); n != 2 {
		t.Errorf("Go sleeps %d times, want 2", n)
	}
	if n := len(pythonSleep.FindAllString("time.sleep(wait)\nawait asyncio.sleep(0.05)\nawait asyncio.sleep(0)\ncuda._sleep(9)", -1)); n != 2 {
		t.Errorf("Python sleeps %d times, want 2", n)
	}
}
