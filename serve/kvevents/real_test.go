//go:build real

package kvevents

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/internal/require"
	"meridian/internal/until"
)

func vllmPython(t *testing.T) string {
	t.Helper()
	python, err := filepath.Abs("../../.peers/vllm/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(python), "../installed")); err != nil {
		require.Skip(t, "vllm", "it is not installed; to have it: make vllm")
	}
	return python
}

// TestRealGolden has vLLM encode anew: what is committed is what it says.
func TestRealGolden(t *testing.T) {
	script := exec.CommandContext(t.Context(), vllmPython(t), "testdata/generate.py")
	script.Env = append(os.Environ(), "VLLM_LOGGING_LEVEL=ERROR")
	fresh, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	batches := func(file []byte) []byte { // after the line of versions
		_, rest, _ := bytes.Cut(file, []byte("\n"))
		return rest
	}
	if !bytes.Equal(batches(fresh), batches(committed)) {
		t.Errorf("vLLM does not encode as it did:\n%s", fresh)
	}
}

// realPublisher is vLLM's, in a process of its own.
type realPublisher struct {
	t              *testing.T
	process        *exec.Cmd
	in             io.WriteCloser
	out            *bufio.Scanner
	events, replay string
}

func openRealPublisher(t *testing.T) *realPublisher {
	t.Helper()
	p := &realPublisher{t: t, process: exec.CommandContext(t.Context(), vllmPython(t), "testdata/publish.py")}
	p.process.Env = append(os.Environ(), "VLLM_LOGGING_LEVEL=ERROR")
	out, err := p.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = io.WriteString(p.in, "stop\n")
		_ = p.in.Close()
		_ = p.process.Wait()
	})
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		t.Fatal("vLLM's publisher says nothing")
	}
	ports := strings.Fields(p.out.Text())
	p.events, p.replay = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	return p
}

func (p *realPublisher) publish(n int) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, "publish %d\n", n); err != nil || !p.out.Scan() {
		p.t.Fatalf("nothing is published: %v", err)
	}
}

// TestRealPublisher follows vLLM's own publisher: what was published before
// it listened, which is more than the publisher's queue for one reader holds, and
// what comes.
func TestRealPublisher(t *testing.T) {
	p := openRealPublisher(t)
	p.publish(3000)
	var mu sync.Mutex
	next, problem := 0, ""
	s, err := Open(Options{
		Events: endpoint(t, p.events), Replay: endpoint(t, p.replay), Retry: 10 * time.Millisecond,
		Apply: func(b Batch) {
			mu.Lock()
			defer mu.Unlock()
			if len(b.Events) != 1 || b.Events[0].Blocks[0] != uint64(next+1) || b.Events[0].Tokens[15] != uint32(next) {
				problem = fmt.Sprintf("batch %d is %+v", next, b)
			}
			next++
		},
		Reset: func(why string) { problem = why },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	await := func(want int) {
		t.Helper()
		until.Well(t, "all batches come", func() string {
			mu.Lock()
			defer mu.Unlock()
			if problem != "" {
				t.Fatal(problem)
			}
			if next != want {
				return fmt.Sprintf("%d of %d, %+v", next, want, s.Status())
			}
			return ""
		})
	}
	await(3000)
	p.publish(50)
	await(3050)
	t.Logf("%+v", s.Status())
}
