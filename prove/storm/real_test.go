//go:build real

package storm

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/run/cell"
	"meridian/run/cell/openaiclient"
)

const model = "tiny"

// running is a cell of the smallest model, and questions that it must answer.
type running struct {
	*cell.Cell
	client    *openaiclient.Client
	questions []Question
	killed    map[string]int // by the name of a part, its process that was killed last
}

func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("MERIDIAN_BIN")
	if path == "" {
		require.Skip(t, "meridian", "MERIDIAN_BIN does not name the program")
	}
	return path
}

// start runs a cell that does not think and is not short of anything.
func start(t *testing.T, questions int) *running {
	t.Helper()
	spec := cell.DefaultSpec()
	spec.Model, spec.Reasoning, spec.DirectTokens = model, false, 8
	return startWith(t, spec, Questions(model, questions, 400, 48, 7))
}

// startWith runs a cell and lets an engine that serves alone answer first.
func startWith(t *testing.T, spec cell.Spec, questions []Question) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := cell.Open(ctx, cell.Options{
		StateDir: filepath.Join(t.TempDir(), "state"), Spec: spec, Program: program(t), Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		FirstPause: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			showLogs(t, c.StateDir())
		}
	})
	r := &running{Cell: c, client: &openaiclient.Client{URL: c.Record().Gateway}, questions: questions, killed: make(map[string]int)}
	plan, err := spec.Alone("alone")
	if err != nil {
		t.Fatal(err)
	}
	alone, err := c.Add(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := Know(ctx, &openaiclient.Client{URL: alone.URL}, r.questions); err != nil {
		t.Fatal(err)
	}
	return r
}

func showLogs(t *testing.T, dir string) {
	_ = cell.Logs(context.Background(), cell.LogOptions{StateDir: dir, Last: 15}, func(l cell.Line) error {
		t.Logf("%-10s %s", l.Part, l.Text)
		return nil
	})
}

// kill ends a part's process as a crash would, and says whether there was one.
func (r *running) kill(t *testing.T, name string) bool {
	part := r.Record().Part(name)
	if part == nil || part.Process == nil {
		return false
	}
	t.Logf("kill -9 %s (%d)", name, part.Process.PID)
	r.killed[name] = part.Process.PID
	return syscall.Kill(part.Process.PID, syscall.SIGKILL) == nil
}

// handedOver is how many requests the decode workers that live now have taken
// over.
func (r *running) handedOver(t *testing.T) (n int) {
	s, err := cell.ReadStatus(t.Context(), r.StateDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Parts {
		if p.Kind == cell.Decode && p.Stats != nil {
			n += p.Stats.HandOffs.Ready
		}
	}
	return n
}

// settled waits until every part is up and no engine keeps a block for a request.
func (r *running) settled(t *testing.T) {
	t.Helper()
	r.await(t, r.unsettled)
}

// patience is how long a busy machine may take for what must come about.
const patience = 2 * time.Minute

// await waits until there is nothing to complain of.
func (r *running) await(t *testing.T, complaint func(context.Context) string) {
	t.Helper()
	began := time.Now()
	until.Within(patience).Well(t, "all is well", func() string { return complaint(t.Context()) })
	t.Logf("all is well after %v", time.Since(began).Round(time.Millisecond))
}

// dead is whether a part's process was killed. The cell may not know it yet, and call it up.
func (r *running) dead(p *cell.PartStatus) bool {
	return p.Process != nil && p.Process.PID == r.killed[p.Name]
}

func (r *running) unsettled(ctx context.Context) string {
	s, err := cell.ReadStatus(ctx, r.StateDir())
	if err != nil {
		return err.Error()
	}
	for _, p := range s.Parts {
		switch {
		case r.dead(&p):
			return p.Name + " is still the process that was killed"
		case !p.Up:
			return p.Name + " is not up: " + p.LastEnd
		case p.Stats == nil:
		case p.Stats.Running+p.Stats.Waiting+p.Stats.Blocks.Held > 0 || p.Stats.Blocks.Free+p.Stats.Blocks.Cached != p.Stats.Blocks.Total:
			return fmt.Sprintf("%s: %+v", p.Name, *p.Stats)
		}
	}
	return ""
}

func (r *running) ask(t *testing.T, clients int, during time.Duration) *Tally {
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	crowd := Crowd{Client: r.client, Questions: r.questions, Clients: clients, Ask: patience, Seed: rand.Uint64()}
	tally := crowd.Run(ctx)
	t.Log(tally)
	if tally.WrongCount > 0 {
		t.Errorf("%d wrong answers", tally.WrongCount)
	}
	if tally.Right == 0 {
		t.Error("nothing was answered")
	}
	if n := r.handedOver(t); n == 0 {
		t.Error("nothing was handed over")
	} else {
		t.Logf("%d requests were handed over to workers that still live", n)
	}
	return tally
}

func TestRealFiveHundredClients(t *testing.T) {
	r := start(t, 200)
	if tally := r.ask(t, 500, time.Minute); tally.Failures() > 0 {
		t.Errorf("%d requests failed, with nothing broken", tally.Failures())
	}
	r.settled(t)
}

// every calls break again and again while work runs.
func every(pause time.Duration, breakOne func(), work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(pause):
			breakOne()
		}
	}
}

func TestRealWorkersAreKilled(t *testing.T) {
	r := start(t, 100)
	workers := []string{}
	for _, p := range r.Record().Parts {
		if p.Kind == cell.Prefill || p.Kind == cell.Decode {
			workers = append(workers, p.Name)
		}
	}
	killed := 0
	every(5*time.Second, func() {
		if r.kill(t, workers[rand.IntN(len(workers))]) {
			killed++
		}
	}, func() { r.ask(t, 48, 50*time.Second) })
	if killed < 3 {
		t.Errorf("only %d workers were killed", killed)
	}
	r.settled(t)
	if after := r.ask(t, 8, 3*time.Second); after.Failures() > 0 {
		t.Errorf("%d requests failed after everything had come back", after.Failures())
	}
}

// Agents die too: engines then serve alone, and come back to their agent.
func TestRealAgentsAreKilled(t *testing.T) {
	r := start(t, 60)
	agents := []string{}
	for _, p := range r.Record().Parts {
		if p.Kind == cell.Agent {
			agents = append(agents, p.Name)
		}
	}
	at := 0
	every(6*time.Second, func() {
		r.kill(t, agents[at%len(agents)])
		at++
	}, func() { r.ask(t, 24, 20*time.Second) })
	r.settled(t)
}

// The members are known without the directory for as long as none comes or goes:
// an outage loses no request.
func TestRealDirectoryIsKilled(t *testing.T) {
	r := start(t, 60)
	every(6*time.Second, func() { r.kill(t, "directory") }, func() {
		if tally := r.ask(t, 24, 20*time.Second); tally.Failures() > 0 {
			t.Errorf("%d requests failed because the directory was away", tally.Failures())
		}
	})
	r.settled(t)
}

// Whatever dies comes back, in whatever order and however often it is killed: a
// part of any kind every two seconds.
func TestRealAnythingIsKilled(t *testing.T) {
	r := start(t, 60)
	parts := []string{}
	for _, p := range r.Record().Parts {
		if p.Kind != cell.Both { // the one that knows the answers
			parts = append(parts, p.Name)
		}
	}
	during := 30 * time.Second
	if minutes, err := strconv.ParseFloat(os.Getenv("MERIDIAN_SOAK_MINUTES"), 64); err == nil {
		during = time.Duration(minutes * float64(time.Minute))
	}
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	crowd := Crowd{Client: r.client, Questions: r.questions, Clients: 24, Ask: patience, Seed: rand.Uint64(), MayBeCut: true}
	var tally *Tally
	killed := 0
	first := rand.Perm(len(parts)) // each one once, and then as it comes
	every(2*time.Second, func() {
		next := rand.IntN(len(parts))
		if killed < len(parts) {
			next = first[killed]
		}
		if ctx.Err() == nil && r.kill(t, parts[next]) {
			killed++
		}
	}, func() { tally = crowd.Run(ctx) })
	t.Log(tally)
	if tally.WrongCount > 0 || tally.Right == 0 {
		t.Errorf("not all answers are right, or there are none: %v", tally)
	}
	if least := int(during.Seconds()) / 8; killed < least {
		t.Errorf("only %d parts were killed", killed)
	}
	r.await(t, r.lacking)
	if after := r.ask(t, 8, 3*time.Second); after.Failures() > 0 {
		t.Errorf("%d requests failed after everything had come back", after.Failures())
	}
	r.settled(t)
}

// lacking says what a cell has not that serves with all its parts.
func (r *running) lacking(ctx context.Context) string {
	s, err := cell.ReadStatus(ctx, r.StateDir())
	if err != nil {
		return err.Error()
	}
	for _, p := range s.Parts {
		if r.dead(&p) {
			return p.Name + " is still the process that was killed"
		}
		if !p.Up || p.Problem != "" {
			return fmt.Sprintf("%s is %s: %s", p.Name, p.State, cmp.Or(p.Problem, p.LastEnd))
		}
	}
	if err := r.FindsWorkers(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// A client that reads a byte a second and one that never reads take nothing
// from the others, and do not keep their blocks for ever.
func TestRealSlowReaders(t *testing.T) {
	r := start(t, 60)
	gateway, err := url.Parse(r.client.URL)
	if err != nil {
		t.Fatal(err)
	}
	var slow []net.Conn
	for i := range 40 {
		conn, err := net.Dial("tcp", gateway.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(2048)
		body := fmt.Sprintf(`{"model": %q, "prompt": "never read %d", "max_tokens": 1500, "stream": true, "ignore_eos": true}`, model, i)
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", gateway.Host, len(body), body)
		slow = append(slow, conn)
	}
	go func() { // one of them sips
		for r := bufio.NewReaderSize(slow[0], 16); ; time.Sleep(time.Second) {
			if _, err := r.ReadByte(); err != nil {
				return
			}
		}
	}()
	if tally := r.ask(t, 24, 15*time.Second); tally.Failures() > 0 {
		t.Errorf("%d requests failed because others do not read", tally.Failures())
	}
	for _, conn := range slow {
		conn.Close()
	}
	r.settled(t)
	if s, err := cell.ReadStatus(t.Context(), r.StateDir()); err != nil || !s.AllUp {
		t.Errorf("the cell: %+v, %v", s, err)
	}
}
