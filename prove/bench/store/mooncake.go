package store

import (
	"context"
	"embed"
	"net"
	"path/filepath"
	"time"

	"meridian/prove/bench"
)

//go:embed peers/*.py
var drivers embed.FS

// mooncake is Mooncake's store over TCP: a master, a client that keeps the
// objects, and one that asks, with put_from and get_into. They cannot be stopped
// between their turns: the master would take its clients for dead.
type mooncake struct {
	bench.Opened
	master, keeper, user *bench.Process
}

const (
	// mooncakeBuffer is what a client of Mooncake sets aside for itself.
	mooncakeBuffer = 64 << 20
	// segmentFactor is how much more than the largest row the keeper holds.
	segmentFactor = 4
)

func openMooncake(ctx context.Context, o Options, _ string) (_ contender, err error) {
	m := &mooncake{}
	defer m.Unless(ctx, &err)
	directory, err := m.Drivers(drivers)
	if err != nil {
		return nil, err
	}
	port, err := bench.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	adminPort, err := bench.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	python, environment := bench.Interpreter(o.PeersDir, "mooncake"), []string{"MC_FORCE_TCP=1", "MC_LOG_LEVEL=ERROR", "GLOG_minloglevel=2", "GLOG_logtostderr=1"}
	m.master, err = m.Server("mooncake_master", []string{
		python, "-m", "mooncake.cli", "--rpc_address=127.0.0.1", "--rpc_port=" + port,
		"--metrics_host=127.0.0.1", "--metrics_port=" + adminPort, "--enable_metric_reporting=false",
	}, environment)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", port)
	if err := m.master.Listens(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	}); err != nil {
		return nil, err
	}
	script := []string{python, filepath.Join(directory, "mooncake_store_peer.py")}
	segment := segmentFactor * (o.mostBytes() + mooncakeBuffer)
	if m.keeper, err = m.start(ctx, "mooncake's keeping client", script, environment, address, segment, 0); err != nil {
		return nil, err
	}
	if m.user, err = m.start(ctx, "mooncake's asking client", script, environment, address, 0, o.mostBytes()); err != nil {
		return nil, err
	}
	return m, m.user.Ask(ctx, map[string]any{"do": "touch", "bytes": segment}, nil)
}

// start starts a client; with a segment it keeps objects, with memory it asks.
func (m *mooncake) start(ctx context.Context, title string, script, environment []string, master string, segment, memory uint64) (*bench.Process, error) {
	port, err := bench.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	p, err := m.Start(title, script, environment)
	if err != nil {
		return nil, err
	}
	return p, p.Ask(ctx, map[string]any{
		"do": "open", "name": net.JoinHostPort("127.0.0.1", port), "master": master,
		"segment": segment, "memory": memory, "buffer": mooncakeBuffer,
	}, nil)
}

func (m *mooncake) Name() string { return "mooncake" }

func (m *mooncake) PIDs() []int { return []int{m.master.PID(), m.keeper.PID(), m.user.PID()} }

func (m *mooncake) load(ctx context.Context, row int, c Case) error {
	return m.user.Ask(ctx, map[string]any{"do": "load", "row": row, "case": c}, nil)
}

func (m *mooncake) round(ctx context.Context, round int) (Lap, error) {
	var took struct {
		All  time.Duration   `json:"ns"`
		Each []time.Duration `json:"each_ns"`
	}
	err := m.user.Ask(ctx, map[string]any{"do": "round", "round": round}, &took)
	return Lap{Took: took.All, Each: took.Each}, err
}

func (m *mooncake) verify(ctx context.Context) error {
	return m.user.Ask(ctx, map[string]any{"do": "verify"}, nil)
}

func (m *mooncake) unload(ctx context.Context) error {
	return m.user.Ask(ctx, map[string]any{"do": "unload"}, nil)
}
