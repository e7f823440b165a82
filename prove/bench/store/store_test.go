package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/prove/bench"
	"meridian/prove/bench/transfer"
)

// The test binary plays the other processes, too.
func TestMain(m *testing.M) {
	play := map[string]func(io.Reader, io.Writer) error{"bench __serve": transfer.Serve, "bench __own": Own}
	if role, is := play[strings.Join(os.Args[1:], " ")]; is {
		if err := role(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func size(t testing.TB, text string) (s bench.Size) {
	t.Helper()
	if err := s.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return s
}

func smallRun(t testing.TB) Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Objects: []bench.Size{size(t, "4KiB"), size(t, "65536")}, Ops: []string{put, get}, Clients: []int{1, 3}, Where: Places(),
		Total: size(t, "1MiB"), Rounds: 2, Peers: []string{"auto"}, PeersDir: t.TempDir(),
		ServeCommand: []string{self, "bench", "__serve"}, OwnCommand: []string{self, "bench", "__own"}, Setting: bench.Setting{Version: "test"},
	}
}

// TestRowsAndTheirShape: rows for every combination in the form that programs
// read, sizes as typed, and a null for who is not installed.
func TestRowsAndTheirShape(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	o, fake := smallRun(t), newFake()
	seen := make(map[string]bool)
	o.Progress = func(p bench.Progress) { seen[p.String()] = true }
	report, err := run(t.Context(), o, fake.open)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[8/8] tcp get 65536, clients: 3: round 2 of 2, transfer"; !seen[want] {
		t.Errorf("no progress %q", want)
	}
	if len(fake.objects) != 0 {
		t.Errorf("%d objects are left", len(fake.objects))
	}
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Rows []struct {
			Op, Object, Where *string
			Clients           *int
			GBps              *float64
			P50               *float64 `json:"p50_us"`
			P99               *float64 `json:"p99_us"`
			Ratio             map[string]*float64
		}
	}
	decoder := json.NewDecoder(&text)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for _, row := range file.Rows {
		got[fmt.Sprint(*row.Op, " ", *row.Object, " ", *row.Clients, " ", *row.Where)] = true
		if *row.GBps <= 0 || *row.P50 <= 0 || *row.P99 < *row.P50 {
			t.Errorf("%s %s: %v GB/s, %v, %v µs", *row.Op, *row.Object, *row.GBps, *row.P50, *row.P99)
		}
		for peer, there := range map[string]bool{"memcpy": true, "transfer": true, "mooncake": false, "redis": false} {
			if ratio, has := row.Ratio[peer]; !has || (ratio != nil) != there {
				t.Errorf("ratio to %s: %v, there: %v", peer, ratio, has)
			}
		}
	}
	if len(file.Rows) != 16 || len(got) != 16 || !got["get 65536 3 tcp"] {
		t.Errorf("%d rows, %d of them different: %v", len(file.Rows), len(got), got)
	}
	checkText(t, report)
}

func checkText(t *testing.T, report *Report) {
	t.Helper()
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"meridian test", "mooncake is absent: not in ", "redis is absent: not on PATH; to have it: apt-get install redis-server",
		"WHERE ", "MEMCPY", "TRANSFER", "\nsame-host  put  4KiB    1 ", "\ntcp        get  65536   3 ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
}

// TestRatiosAreOfRounds: a machine that slows down for one round slows both down.
func TestRatiosAreOfRounds(t *testing.T) {
	c := Case{Op: put, Object: 1000, Clients: 1, Count: 1}
	lap := func(took time.Duration) Lap { return Lap{Took: took, Each: []time.Duration{took}} }
	row := newRow(c, sameHost, bench.Size{Bytes: 1000, Text: "1000"}, map[string][]Lap{
		oursName: {lap(10), lap(100), lap(1000)},
		"memcpy": {lap(5), lap(50), lap(4000)},
		"redis":  {lap(5), lap(50)}, // failed before the last round
	}, 0)
	if ratio := row.Ratio["memcpy"]; ratio == nil || *ratio != 0.5 {
		t.Errorf("ratio %v, want the median of 0.5, 0.5 and 4", ratio)
	}
	if row.Ratio["redis"] != nil || row.GBps != 10 || row.P50 != 0.1 {
		t.Errorf("%+v", row)
	}
}

// TestWrongBytesFail: a contender that gives other bytes back has no figures.
func TestWrongBytesFail(t *testing.T) {
	for _, op := range []string{put, get} {
		o, fake := smallRun(t), newFake()
		o.Ops, o.Peers, o.Where = []string{op}, []string{"none"}, []string{sameHost}
		fake.spoiled = true
		if _, err := run(t.Context(), o, fake.open); !errors.Is(err, ErrContents) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestNamedPeersMustBeThere: a user who names a peer wants it.
func TestNamedPeersMustBeThere(t *testing.T) {
	o := smallRun(t)
	o.Peers = []string{"mooncake"}
	if _, err := run(t.Context(), o, newFake().open); !errors.Is(err, bench.ErrPeer) {
		t.Errorf("%v", err)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"no rounds": func(o *Options) { o.Rounds = 0 }, "unknown op": func(o *Options) { o.Ops = []string{"push"} },
		"unknown place": func(o *Options) { o.Where = []string{"moon"} }, "no objects": func(o *Options) { o.Objects = nil },
		"too large": func(o *Options) { o.Objects = []bench.Size{size(t, "2MiB")} }, "odd size": func(o *Options) { o.Objects = []bench.Size{size(t, "13B")} },
		"no clients": func(o *Options) { o.Clients = []int{0} }, "unknown peer": func(o *Options) { o.Peers = []string{"memcached"} },
	} {
		o := smallRun(t)
		change(&o)
		if _, err := run(t.Context(), o, newFake().open); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
