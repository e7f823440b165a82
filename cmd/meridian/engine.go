package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"meridian/engine"
	"meridian/serve/door"
)

type engineCommand struct {
	cellFlags
	Agent           string        `help:"Agent of this host to register with (default: agent.name of the configuration)."`
	NoDoor          bool          `help:"Do without an agent: prompts are computed here, and nothing is handed over."`
	ID              string        `name:"id" default:"engine" help:"Id of the engine, unique in the cell (default: ${default})."`
	Role            string        `enum:"prefill,decode,both" default:"both" help:"What requests it is meant for: prefill, decode or both (default: ${default})."`
	Listen          string        `default:"127.0.0.1:0" placeholder:"ADDRESS" help:"Where it serves HTTP (default: ${default}, any free port)."`
	Model           string        `default:"small" help:"tiny, small, or a directory with config.json, safetensors and tokenizer.json (default: ${default})."`
	ServedModelName string        `placeholder:"NAME" help:"What requests call the model (default: --model)."`
	Seed            uint64        `help:"Rolls the weights of tiny and small (default: ${default})." default:"0"`
	TP              int           `name:"tp" default:"1" help:"Ranks that share the heads of a layer (default: ${default})."`
	PP              int           `name:"pp" default:"1" help:"Pipeline stages (default: ${default})."`
	Block           int           `default:"16" help:"Tokens in a block of KV memory (default: ${default})."`
	Layout          string        `default:"LBHNC" help:"Order of the KV memory's axes (default: ${default})."`
	Blocks          int           `help:"Blocks of KV memory (default: as many as 256 MiB hold)."`
	MaxRunning      int           `help:"Answers that are computed at a time (default: 64, tiny 512)."`
	MaxWaiting      int           `default:"1024" help:"Answers that may wait; beyond it requests get status 429 (default: ${default})."`
	StepTokens      int           `help:"Tokens that a step computes at most (default: 64, tiny 512)."`
	Threads         int           `default:"1" help:"Threads that compute a step (default: ${default})."`
	Reasoning       bool          `help:"Play a model that reasons: every answer begins with a scripted thought, and is labelled so."`
	EntropyTrace    string        `placeholder:"FILE" help:"Entropies that the scripted thoughts of --reasoning play, in JSON."`
	NoGovernor      bool          `help:"Do without the agent's governor: who runs and how long thoughts are, the engine alone decides."`
	GovernorWait    time.Duration `placeholder:"TIME" help:"Wait for each decision of the governor so long, whatever governor.wait_us says (default: as that says). With a long one, as 10s, every step is planned by the newest decision, so that tests go the same way each time."`
	HandoffDeadline time.Duration `default:"10s" help:"How long a request waits for its cache before the prompt is computed here (default: ${default})."`
}

// maxGovernorWait is longer than any decision takes.
const maxGovernorWait = time.Minute

func (c *engineCommand) Help() string {
	return "Runs the reference engine: a small real transformer with paged KV memory behind the OpenAI API, in the foreground, until Ctrl-C. " +
		"It is a reference and a test bed, not an engine for production: tiny and small have random weights and answer with readable gibberish, " +
		"the same on every machine for the same seed. With an agent it lends its KV memory and takes part in hand-offs. docs/engine.md tells more."
}

func (c *engineCommand) Run(std *stdio, all *commands) error {
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	if err := c.fill(loaded.Config); err != nil {
		return err
	}
	if c.GovernorWait < 0 || c.GovernorWait > maxGovernorWait {
		return invalid("say --governor-wait 10s, or leave it out", "--governor-wait %v is no time from 0 to %v", c.GovernorWait, maxGovernorWait)
	}
	socket := ""
	if !c.NoDoor {
		name, err := agentName(c.Agent, loaded.Config)
		if err != nil {
			return err
		}
		socket = door.Socket(c.State, name)
	}
	var trace *engine.Trace
	if c.EntropyTrace != "" {
		if trace, err = engine.ReadTrace(c.EntropyTrace); err != nil {
			return &failure{err: err, hint: "docs/engine.md says what is in such a file", status: exitInvalid}
		}
	}
	ctx, cancel := whileServing(all.logger(std), nothingToReload)
	defer cancel()
	listener, err := c.listen(std, all)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	e, err := engine.Open(ctx, engine.Options{
		ID: c.ID, Model: c.Model, Seed: c.Seed, ServedName: c.ServedModelName, Reasoning: c.Reasoning,
		TP: c.TP, PP: c.PP, Layout: c.Layout, BlockTokens: c.Block, Blocks: c.Blocks, Threads: c.Threads,
		MaxRunning: c.MaxRunning, MaxWaiting: c.MaxWaiting, StepTokens: c.StepTokens,
		Door: socket, URL: url, Role: c.Role, HandoffDeadline: c.HandoffDeadline, Logger: all.logger(std),
		Trace: trace, Ungoverned: c.NoGovernor, GovernorWait: c.GovernorWait,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	handler, numbers, err := engineWithMetrics(ctx, e, otlpEndpoint(loaded.Config), all.logger(std))
	if err != nil {
		return errors.Join(err, listener.Close(), closeSoon(e.Close))
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: stopTimeout, IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(all.logger(std).Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	stats := e.Stats()
	all.ready(std, fmt.Sprintf("engine %s ready at %s (%s, %s, %d blocks, %s, door %s)", c.ID, url, stats.Model, stats.Cut, stats.Blocks.Total, c.Role, stats.Door),
		"engine", c.ID, "url", url, "model", stats.Model, "cut", stats.Cut, "role", c.Role)
	err = serveUntil(ctx, e, server, failed)
	if problem := closeSoon(numbers.Close); problem != nil {
		all.logger(std).Warn("the last metrics were not delivered", "error", problem)
	}
	return err
}

// closeSoon closes something, in the time that a clean stop may take.
func closeSoon(closing func(context.Context) error) error {
	stop, done := stopping()
	defer done()
	return closing(stop)
}

// serveUntil serves until ctx ends or the server fails, and then drains.
func serveUntil(ctx context.Context, e *engine.Engine, server *http.Server, failed <-chan error) error {
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop, done := stopping()
	defer done()
	err = errors.Join(err, e.Close(stop), server.Shutdown(stop))
	if stop.Err() != nil {
		err = errors.Join(err, server.Close()) // a client does not read its answer
	}
	return err
}

func (c *engineCommand) listen(std *stdio, all *commands) (net.Listener, error) {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	if address, isTCP := listener.Addr().(*net.TCPAddr); isTCP && !address.IP.IsLoopback() {
		if !c.Insecure {
			return nil, errors.Join(&failure{
				err:  fmt.Errorf("%s is beyond loopback, and the engine's HTTP has neither keys nor TLS", c.Listen),
				hint: "listen at 127.0.0.1 and let a gateway face the network, or say --insecure", status: exitInvalid,
			}, listener.Close())
		}
		all.logger(std).Warn("the engine serves plain HTTP beyond loopback, to all that reach it", "address", listener.Addr().String())
	}
	return listener, nil
}
