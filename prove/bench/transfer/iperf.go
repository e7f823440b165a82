package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"meridian/prove/bench"
)

// iperf is iperf3 between two processes with as many streams: what the
// machine's TCP allows without asking where bytes come from and go to.
type iperf struct {
	server  *exec.Cmd
	exited  chan struct{}
	port    string
	streams int
	version string
}

// iperfBytes is what one round moves: enough that starting up does not count.
const iperfBytes = 2 << 30

func openIperf(ctx context.Context, o Options) (*iperf, error) {
	port, err := bench.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	p := &iperf{port: port, streams: o.Streams, exited: make(chan struct{}), version: iperfVersion(ctx)}
	p.server = exec.Command("iperf3", "--server", "--bind", "127.0.0.1", "--port", port)
	p.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.server.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.server.Wait()
		close(p.exited)
	}()
	if err := p.connect(ctx); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

// iperfVersion is the second word of "iperf 3.12 (…)".
func iperfVersion(ctx context.Context) string {
	text, _ := exec.CommandContext(ctx, "iperf3", "--version").Output()
	if words := strings.Fields(string(text)); len(words) > 1 {
		return words[1]
	}
	return "?"
}

// connect waits until the server answers.
func (p *iperf) connect(ctx context.Context) error {
	_, err := p.persist(ctx, 1<<20, false)
	return err
}

// persist runs the client until the server takes it: it does not listen for a
// moment when it starts, nor after each client.
func (p *iperf) persist(ctx context.Context, bytes int, pinned bool) (rate float64, err error) {
	for range 50 {
		if rate, err = p.client(ctx, bytes, pinned); err == nil {
			return rate, nil
		}
		select {
		case <-p.exited:
			return 0, fmt.Errorf("iperf3's server %w: %v", bench.ErrGone, p.server.ProcessState)
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return 0, err
}

func (p *iperf) client(ctx context.Context, bytes int, pinned bool) (float64, error) {
	args := []string{
		"--client", "127.0.0.1", "--port", p.port, "--parallel", strconv.Itoa(p.streams),
		"--bytes", strconv.Itoa(bytes), "--length", "1M", "--json",
	}
	if pinned {
		near, far := bench.Halves()
		args = append(args, "--affinity", fmt.Sprintf("%d,%d", near[0], far[0]))
	}
	cmd := exec.CommandContext(ctx, "iperf3", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, runErr := cmd.Output()
	var said struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	err := json.Unmarshal(out, &said)
	switch {
	case err == nil && said.Error != "":
		return 0, fmt.Errorf("iperf3: %s", said.Error)
	case runErr != nil:
		return 0, fmt.Errorf("iperf3: %w", runErr)
	case err != nil || said.End.Received.BitsPerSecond == 0:
		return 0, fmt.Errorf("iperf3 reported nothing: %w", err)
	}
	return said.End.Received.BitsPerSecond / 8e9, nil
}

func (p *iperf) Name() string { return "iperf3" }

func (p *iperf) round(ctx context.Context, pinned bool) (float64, error) {
	return p.persist(ctx, iperfBytes, pinned)
}

// Bytes without a place need neither loading nor checking.
func (p *iperf) load(context.Context, Case) error { return nil }
func (p *iperf) clear(context.Context) error      { return nil }
func (p *iperf) verify(context.Context) error     { return nil }
func (p *iperf) rest()                            {}
func (p *iperf) wake()                            {}
func (p *iperf) PIDs() []int                      { return []int{p.server.Process.Pid} }

func (p *iperf) Close(context.Context) error {
	_ = p.server.Process.Kill()
	<-p.exited
	return nil
}
