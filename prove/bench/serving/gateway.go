// Package serving measures what stands between users and engines: what the
// gateway costs beside the engine alone, and what a hand-off between servers of
// vLLM costs beside one server alone and beside other connectors.
package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"meridian/prove/bench"
)

// GatewayOptions says how to measure a gateway.
type GatewayOptions struct {
	Clients []int   `default:"1,64" placeholder:"N" help:"Clients that ask at a time, each one request after the other; default ${default}."`
	Seconds float64 `default:"1" placeholder:"S" help:"How long one side of one round lasts; default ${default}."`
	Rounds  int     `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	// Command runs a gateway; flags are added to it.
	Command       []string `kong:"-"`
	bench.Setting `kong:"-"`
}

// maxClients is how many clients a row may have.
const maxClients = 1024

func (o *GatewayOptions) validate() error {
	switch {
	case o.Rounds < 1:
		return fmt.Errorf("%w: %d rounds; at least 1", bench.ErrOptions, o.Rounds)
	case o.Seconds < 0.05 || o.Seconds > 600:
		return fmt.Errorf("%w: %v seconds; 0.05 to 600", bench.ErrOptions, o.Seconds)
	case len(o.Clients) == 0:
		return fmt.Errorf("%w: no client asks: say how many clients", bench.ErrOptions)
	}
	for _, n := range o.Clients {
		if n < 1 || n > maxClients {
			return fmt.Errorf("%w: %d clients; 1 to %d", bench.ErrOptions, n, maxClients)
		}
	}
	return nil
}

// RunGateway measures what a gateway adds. An engine that answers at once and
// clients that do nothing but ask are in this process; the gateway is in one of
// its own, on one core that it has for itself where there are two. In every
// round the same clients ask the engine directly and then through the gateway.
func RunGateway(ctx context.Context, o GatewayOptions) (report *GatewayReport, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	engine, err := openStubEngine()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.close()) }()
	g, err := startGateway(ctx, o.Command, engine.address())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.CloseWithin(gatewayStop)) }()
	report = newGatewayReport(o, g)
	defer func() { err = errors.Join(err, bench.Pin(os.Getpid(), bench.UsableCores())) }()
	if err := bench.Pin(os.Getpid(), g.others); err != nil {
		return nil, err
	}
	meter := bench.StartMeter([]int{g.PID()})
	rows := len(stubAnswers) * len(o.Clients)
	for i, answer := range stubAnswers {
		for k, clients := range o.Clients {
			progress := func(round int, who string) {
				what := fmt.Sprintf("%s, %d clients", answer.name, clients)
				o.Tell(bench.Progress{Row: i*len(o.Clients) + k + 1, Rows: rows, What: what, Round: round, Rounds: o.Rounds, Who: who})
			}
			row, err := measureGateway(ctx, o, g, gatewayLoad{answer, clients, engine.address()}, progress)
			if err != nil {
				return nil, err
			}
			report.Rows = append(report.Rows, row)
		}
	}
	report.Others = meter.Others()
	return report, nil
}

// gatewayLoad is what one row asks for.
type gatewayLoad struct {
	answer  stubAnswer
	clients int
	engine  string
}

// warmUp is long enough to open connections and to fill caches.
const warmUp = 200 * time.Millisecond

func measureGateway(ctx context.Context, o GatewayOptions, g *gatewayProcess, l gatewayLoad, progress func(int, string)) (GatewayRow, error) {
	length := time.Duration(o.Seconds * float64(time.Second))
	var direct, through []heard
	var cpu time.Duration
	served := 0
	for round := range o.Rounds + 1 {
		lasts := length
		if round == 0 {
			lasts = min(length, warmUp)
		}
		progress(round, "direct")
		d, err := askAll(ctx, l.engine, l.answer, l.clients, lasts)
		if err != nil {
			return GatewayRow{}, fmt.Errorf("%w: directly: %w", ErrMeasure, err)
		}
		progress(round, "gateway")
		before := bench.CPUTime(g.PID())
		t, err := askAll(ctx, g.address, l.answer, l.clients, lasts)
		if err != nil {
			return GatewayRow{}, fmt.Errorf("%w: through the gateway: %w", ErrMeasure, err)
		}
		if round > 0 {
			direct, through = append(direct, d), append(through, t)
			cpu += bench.CPUTime(g.PID()) - before
			served += len(t.latencies)
		}
	}
	row := gatewayRow(l, direct, through)
	row.CPUMicroseconds = bench.Rounded(float64(cpu.Microseconds()) / float64(max(1, served)))
	return row, nil
}

// ErrMeasure means that what is measured did not do what it should.
var ErrMeasure = errors.New("bench: the measurement failed")

// gatewayProcess is a gateway on one core.
type gatewayProcess struct {
	bench.Opened
	*bench.Process
	address string
	core    int
	others  []int // cores for everything else
}

// startGateway starts a gateway before an engine, on the last core.
func startGateway(ctx context.Context, command []string, engine string) (*gatewayProcess, error) {
	cores := bench.UsableCores()
	g := &gatewayProcess{core: cores[len(cores)-1], others: cores}
	state, err := g.Folder("")
	if err != nil {
		return nil, err
	}
	flags := []string{"--state", state, "--listen", "127.0.0.1:0", "--admin", "", "--both", "http://" + engine}
	if len(cores) > 1 {
		g.others = cores[:len(cores)-1]
	}
	if g.Process, err = g.Server("the gateway", append(command[:len(command):len(command)], flags...), []string{"GOMAXPROCS=1"}); err == nil {
		err = g.ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, g.CloseWithin(gatewayStop))
	}
	return g, nil
}

// ready waits for the line that says where it listens, and gives it its core.
func (g *gatewayProcess) ready(ctx context.Context) error {
	line, err := g.Line(ctx)
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(line), "http://")
	g.address, _, _ = strings.Cut(rest, ",")
	if _, _, err := net.SplitHostPort(g.address); err != nil {
		return fmt.Errorf("the gateway said %q: %w", line, err)
	}
	return bench.Pin(g.PID(), []int{g.core})
}

// gatewayStop is how long a gateway without requests may take to end.
const gatewayStop = 10 * time.Second
