package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/prove/bench"
)

// The test binary plays the other processes too: the serving side, and a
// parent that is killed.
func TestMain(m *testing.M) {
	switch role := strings.Join(os.Args[1:], " "); role {
	case "bench __serve":
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "bench __parent":
		beKilled()
	}
	goleak.VerifyTestMain(m)
}

func serveCommand(t testing.TB) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, "bench", "__serve"}
}

func size(t testing.TB, text string) (s bench.Size) {
	t.Helper()
	if err := s.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return s
}

func smallRun(t testing.TB) Options {
	return Options{
		Fabrics: []string{"tcp"}, Ops: []string{"write"}, Blocks: []bench.Size{size(t, "4KiB")}, Total: size(t, "1MiB"),
		Layouts: []Layout{Scattered}, Checksums: []string{"on"}, Rounds: 2, Peers: []string{"none"},
		PeersDir: t.TempDir(), ServeCommand: serveCommand(t), Setting: bench.Setting{Version: "test"},
	}
}

func TestRowsAndTheirShape(t *testing.T) {
	o := smallRun(t)
	o.Ops, o.Layouts, o.Checksums = []string{"read", "write"}, []Layout{Scattered, Dense}, []string{"on", "off"}
	o.Blocks, o.Peers, o.Pin = []bench.Size{size(t, "4KiB"), size(t, "65536")}, []string{"memcpy"}, true
	seen := make(map[string]bool)
	o.Progress = func(p bench.Progress) { seen[p.String()] = true }
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[8/8] tcp write 65536 dense: round 2 of 2, memcpy"; !seen[want] {
		t.Errorf("no progress %q", want)
	}
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Rows []struct {
			Fabric, Op, Block, Layout, Checksum, Protect *string
			GBps, Min, Max                               *float64
			Ratio                                        map[string]*float64
		}
	}
	decoder := json.NewDecoder(&text)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for _, row := range file.Rows {
		got[strings.Join([]string{*row.Fabric, *row.Op, *row.Block, *row.Layout, *row.Checksum}, " ")] = true
		if !(0 < *row.Min && *row.Min <= *row.GBps && *row.GBps <= *row.Max) {
			t.Errorf("%v: %v, %v, %v", *row.Block, *row.Min, *row.GBps, *row.Max)
		}
		for _, peer := range []string{"iperf3", "memcpy", "nixl", "mooncake"} {
			if ratio, has := row.Ratio[peer]; !has || (ratio != nil) != (peer == "memcpy") {
				t.Errorf("ratio to %s: %v, there: %v", peer, ratio, has)
			}
		}
	}
	if len(file.Rows) != 16 || len(got) != 16 || !got["tcp read 65536 dense off"] {
		t.Errorf("%d rows, %d of them different: %v", len(file.Rows), len(got), got)
	}
	checkTable(t, report, 16)
}

// checkTable: every column starts under its heading.
func checkTable(t *testing.T, report *Report, rows int) {
	t.Helper()
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	head, table, _ := strings.Cut(text.String(), "\n\n")
	for _, want := range []string{"meridian test", "cores of", "20", "memcpy (Go, every core)", "2 rounds of 1MiB"} {
		if !strings.Contains(head, want) {
			t.Errorf("the header lacks %q:\n%s", want, head)
		}
	}
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != rows+1 {
		t.Fatalf("%d lines:\n%s", len(lines), table)
	}
	for _, heading := range []string{"OP", "LAYOUT", "MERIDIAN", "MEMCPY"} {
		column := strings.Index(lines[0], " "+heading)
		for _, line := range lines[1:] {
			runes := []rune(line)
			if runes[column] != ' ' || runes[column+1] == ' ' {
				t.Errorf("%s is not aligned:\n%s", heading, table)
				break
			}
		}
	}
}

func TestWhatMakesNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"fabric":  {func(o *Options) { o.Fabrics = []string{"warp"} }, `no fabric "warp"; there is tcp, host, inproc, file`},
		"op":      {func(o *Options) { o.Ops = []string{"erase"} }, `no operation "erase"`},
		"twice":   {func(o *Options) { o.Ops = []string{"read", "read"} }, "operation read twice"},
		"layout":  {func(o *Options) { o.Layouts = []Layout{"sparse"} }, `no layout "sparse"`},
		"sums":    {func(o *Options) { o.Checksums = []string{"maybe"} }, `no checksum setting "maybe"`},
		"peer":    {func(o *Options) { o.Peers = []string{"scp"} }, "say auto, none, or some of nixl, mooncake, iperf3, memcpy"},
		"rounds":  {func(o *Options) { o.Rounds = 0 }, "0 rounds"},
		"streams": {func(o *Options) { o.Streams = 65 }, "65 streams"},
		"block":   {func(o *Options) { o.Blocks = []bench.Size{size(t, "3KiB")} }, "blocks of 3KiB in a total of 1MiB"},
		"word":    {func(o *Options) { o.Blocks = []bench.Size{size(t, "4B")} }, "blocks of 4B"},
		"unfit": {
			func(o *Options) { o.Fabrics, o.Peers = []string{"tcp", "host"}, []string{"memcpy", "iperf3"} },
			"no iperf3 beside host: what is measured of it moves bytes over TCP",
		},
		"protection": {func(o *Options) { o.Protect = []string{"moat"} }, `no protection "moat"; there is none, grants, tls`},
		"host tls":   {func(o *Options) { o.Fabrics, o.Protect = []string{"host"}, []string{"tls"} }, "host cannot be measured with tls: it never leaves the machine"},
		"guarded file": {
			func(o *Options) { o.Fabrics, o.Protect = []string{"file"}, []string{"grants"} },
			"file cannot be measured with grants: its two sides are one agent",
		},
		"latency": {func(o *Options) { o.Fabrics, o.Latency = []string{"file"}, true }, "no peer is there to be notified"},
	} {
		o := smallRun(t)
		c.change(&o)
		_, err := Run(t.Context(), o)
		if !errors.Is(err, bench.ErrOptions) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAbsentPeers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	o := smallRun(t)
	o.Peers = []string{"auto"}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"nixl is absent: not in " + o.PeersDir + "/nixl; to have it: make peers", "mooncake is absent: not in ",
		"iperf3 is absent: not on PATH; to have it: apt-get install iperf3", "beside memcpy",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	o.Peers = []string{"memcpy", "nixl"}
	if _, err := Run(t.Context(), o); !errors.Is(err, bench.ErrPeer) {
		t.Errorf("a peer that was named is missing: %v", err)
	}
}

// Every fabric moves every kind of row, verified; peers that do something else
// are named with the reason; nothing is left behind.
func TestEveryFabric(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, kind := range fabrics {
		t.Run(kind.name, func(t *testing.T) {
			o := smallRun(t)
			o.Fabrics, o.Peers, o.Dir, o.Streams = []string{kind.name}, []string{"auto"}, t.TempDir(), 3
			o.Ops, o.Layouts, o.Checksums = []string{"read", "write"}, []Layout{Scattered, Dense}, []string{"on", "off"}
			o.Blocks = []bench.Size{size(t, "4KiB"), size(t, "1MiB")} // many blocks, and fewer than streams
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Rows) != 16 {
				t.Errorf("%d rows", len(report.Rows))
			}
			for _, row := range report.Rows {
				if row.Fabric != kind.name || row.Min <= 0 || row.Ratio["memcpy"] == nil || row.Ratio["nixl"] != nil {
					t.Errorf("%+v", row)
				}
			}
			checkAbsences(t, report, kind)
			if left, err := os.ReadDir(o.Dir); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func checkAbsences(t *testing.T, report *Report, kind fabricKind) {
	t.Helper()
	if len(report.Absent) != 3 { // all but memcpy
		t.Errorf("absent: %v", report.Absent)
	}
	for _, absence := range report.Absent {
		if why := kind.unfit[absence.Peer]; why != "" && (absence.Why != why || absence.Fabric != kind.name || absence.Fix != "") {
			t.Errorf("%+v, want %s", absence, why)
		}
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if got := strings.Contains(text.String(), "3 streams"); got != kind.streams {
		t.Errorf("streams mentioned: %v, matter: %v", got, kind.streams)
	}
	if kind.note != "" && !strings.Contains(text.String(), kind.note) {
		t.Errorf("the report lacks what one must know of %s:\n%s", kind.name, text.String())
	}
}

// Within one process there is no peer to play ping-pong with.
func TestLatencyWithinOneProcess(t *testing.T) {
	o := smallRun(t)
	o.Fabrics, o.Latency, o.Rounds, o.Pin, o.Peers = []string{"inproc"}, true, 1, true, []string{"auto"}
	report, err := Run(t.Context(), o)
	if err != nil || len(report.Latency) != 2 {
		t.Fatalf("%v: %+v", err, report)
	}
	for _, row := range report.Latency {
		if row.Who != "meridian" || row.P50.Median <= 0 || row.PostingCores <= 0 || row.ServingCores != 0 {
			t.Errorf("%+v", row)
		}
	}
	var absent []string
	for _, absence := range report.Absent {
		absent = append(absent, absence.Peer)
	}
	if !slices.Equal(absent, []string{"ping-pong", "nixl"}) {
		t.Errorf("absent: %v", report.Absent)
	}
}

func TestLatency(t *testing.T) {
	for _, name := range []string{"tcp", "host"} {
		t.Run(name, func(t *testing.T) { checkLatency(t, name) })
	}
}

func checkLatency(t *testing.T, fabricName string) {
	o := smallRun(t)
	o.Fabrics = []string{fabricName}
	o.Latency, o.Rounds, o.Checksums = true, 1, []string{"on", "off"}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 0 || len(report.Latency) != 8 {
		t.Fatalf("%d rows and %d of latency", len(report.Rows), len(report.Latency))
	}
	for _, row := range report.Latency {
		if row.P50.Median <= 0 || row.P50.Median > row.P99.Median || (row.Ratio50 == nil) != (row.Who == "meridian") {
			t.Errorf("%+v", row)
		}
		if row.PostingCores <= 0 || row.ServingCores <= 0 {
			t.Errorf("%s: %v and %v cores", row.Who, row.PostingCores, row.ServingCores)
		}
	}
	if done, echo := report.Latency[0], report.Latency[2]; done.Until != "done" || echo.Until != "echo" || echo.P50.Median < done.P50.Median/2 {
		t.Errorf("an answer came long before the write was done: %+v, %+v", done, echo)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "ping-pong") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestProfiles(t *testing.T) {
	o := smallRun(t)
	o.CPUProfile, o.Fabrics, o.Checksums = t.TempDir()+"/profiles", []string{"tcp", "host"}, []string{"on", "off"}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"posting", "serving-tcp", "serving-tcp-no-checksums", "serving-host", "serving-host-no-checksums",
	} {
		if info, err := os.Stat(o.CPUProfile + "/" + name + ".pprof"); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A run that is cancelled ends soon and takes its processes with it.
func TestCancelledRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := smallRun(t)
	o.Rounds = 1 << 20
	o.Progress = func(p bench.Progress) {
		if p.Round == 3 {
			cancel()
		}
	}
	start := time.Now()
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > closeLimit {
		t.Errorf("it took %v", took)
	}
	if n, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("a child is left: %d, %v", n, err)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]uint64{"512": 512, "512B": 512, "16KiB": 16 << 10, "1MiB": 1 << 20, "2GiB": 2 << 30} {
		if s := size(t, text); s.Bytes != want || s.String() != text {
			t.Errorf("%s: %d, %s", text, s.Bytes, s)
		}
	}
	for _, text := range []string{"", "KiB", "0", "-1KiB", "1.5MiB", "4kb", "16K", "99999999999GiB"} {
		var s bench.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d bytes", text, s.Bytes)
		}
	}
}
