package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"meridian/run/cell"
	"meridian/run/cell/demo"
	"meridian/run/cell/openaiclient"
	"meridian/run/config"
)

type upCommand struct {
	Engine    string      `enum:"reference,vllm" default:"reference" placeholder:"NAME" help:"What the workers are: reference engines, or vllm (default: ${default})."`
	Prefill   string      `placeholder:"CUT" help:"How prefill workers cut the model and its cache: tp, pp, block (tokens), layout (default: tp=2,pp=1,block=16; vllm: tp=1,pp=1,block=32)."`
	Decode    string      `placeholder:"CUT" help:"How decode workers do (default: tp=4,pp=2,block=64; vllm: tp=1,pp=1,block=32)."`
	Workers   string      `placeholder:"PxD" help:"How many prefill and how many decode workers (default: 2x2; vllm: 1x1)."`
	Model     string      `placeholder:"NAME|DIR" help:"A model that is built in (tiny, small), or a Hugging Face directory (default: small); with vllm, what vLLM can serve."`
	Venv      string      `placeholder:"DIR" help:"Virtual environment with vLLM and Meridian's Python package (default: the active one, else .peers/vllm, else vllm on PATH)."`
	VLLMArgs  string      `name:"vllm-args" placeholder:"FLAGS" help:"More flags for every vLLM server, quoted as in a shell."`
	Govern    bool        `help:"Have the agents' governors decide for vLLM servers: who runs, who waits, and, where [model.*] has the ids that end thoughts, how long they are."`
	Seed      uint64      `default:"0" placeholder:"N" help:"What the weights of a built-in model are made from (default: ${default})."`
	State     string      `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory (default: agent.state_dir of the configuration)."`
	Listen    string      `placeholder:"ADDRESS" help:"Where the gateway listens (default: 127.0.0.1:8080, or the next port that is free)."`
	Admin     string      `placeholder:"ADDRESS" help:"Where its admin listener is (default: 127.0.0.1:8081, or the next port that is free)."`
	Reasoning *bool       `negatable:"" help:"Have the engines play a model that thinks, by a script (default: yes, of a model that is built in)."`
	Store     *sizeOrNone `placeholder:"SIZE" help:"Have each of the two agents keep prefixes and other objects in so much memory; 0 for none (default: store.bytes of the configuration where store.enabled is true, else 256MiB)."`
	NoRestart bool        `help:"Leave parts that die alone."`
	Open      bool        `help:"Open the page about the cell in a browser."`
	Demo      bool        `help:"Send a small load, compare it with one engine alone, token by token, show latencies, and stop."`
	JSON      bool        `help:"With --demo: print the report as one JSON object."`
}

func (c *upCommand) Help() string {
	return "Runs a whole cell on this machine, in the foreground, until Ctrl-C: a directory, two agents that stand for two hosts, " +
		"prefill and decode workers, and the gateway; each is a process of its own. What dies is started again. " +
		"Ctrl-C lets requests end and stops everything; a second one kills. docs/cell.md tells more. " +
		"The workers are reference engines, or with --engine vllm servers of a real vLLM: docs/vllm.md."
}

// defaultStore is what an agent of a cell keeps, unless the operator says otherwise.
const defaultStore = "256MiB"

// spec is what flags and configuration say the cell is made of.
func (c *upCommand) spec(ctx context.Context, in *config.Loaded) (cell.Spec, error) {
	s := cell.DefaultSpec()
	if c.Engine == "vllm" {
		s = cell.DefaultVLLMSpec()
	}
	switch {
	case c.Store != nil:
		s.Store = c.Store.String()
	case !in.Store.Enabled:
		s.Store = defaultStore
	}
	if folder := in.Store.Disk.Dir; folder != config.None {
		// Each agent has objects of its own.
		s.AgentEnvironment = make(map[string][]string)
		for _, name := range []string{string(cell.Prefill), string(cell.Decode)} {
			s.AgentEnvironment[name] = []string{"MERIDIAN_STORE_DISK_DIR=" + filepath.Join(folder, name)}
		}
	}
	s.Seed = c.Seed
	if in.Origin("gateway.direct_prompt_tokens") != config.Default {
		s.DirectTokens = 0
	}
	if len(in.Gateway.Backend) > 0 {
		return s, invalid("take them out of the configuration, or run `meridian gateway` without a cell", "gateway.backend lists engines, but a cell has engines of its own")
	}
	if err := c.cuts(&s); err != nil {
		return s, err
	}
	if err := c.model(&s); err != nil {
		return s, err
	}
	s.Reasoning = c.Engine != "vllm" && s.ServedName == "" // a directory may hold a model without think markers
	if c.Reasoning != nil {
		s.Reasoning = *c.Reasoning && c.Engine != "vllm"
	}
	if c.Engine != "vllm" {
		if c.Venv != "" || c.VLLMArgs != "" || c.Govern {
			return s, invalid("say --engine vllm too", "--venv, --vllm-args and --govern are for vLLM")
		}
		return s, nil
	}
	if err := c.vllm(ctx, &s); err != nil || !c.Govern {
		return s, err
	}
	s.VLLM.Governed, s.VLLM.Settings = c.governed(in, &s)
	return s, nil
}

// governed is what has vLLM's servers ask the governors of their agents, and where they
// read what those go by. BudgetLogits refuses to start where it cannot end thoughts, so
// only a model that says by which ids gets it; a comparison is with a server without it.
func (c *upCommand) governed(in *config.Loaded, s *cell.Spec) (args, environment []string) {
	args = []string{"--scheduler-cls", "meridian.vllm.Scheduler"}
	if in.File != "" {
		if file, err := filepath.Abs(in.File); err == nil {
			environment = []string{"MERIDIAN_CONFIG=" + file}
		}
	}
	guesses := slices.ContainsFunc(s.VLLM.Args, func(arg string) bool { return strings.HasPrefix(arg, "--spec") || strings.HasPrefix(arg, "-sc") })
	_, m, err := in.ModelOf(cmp.Or(s.ServedName, s.Model))
	if err == nil && len(m.ThinkEndTokenIDs) > 0 && m.Channel == (config.Channel{}) && !guesses && !c.Demo {
		args = append(args, "--logits-processors", "meridian.vllm:BudgetLogits")
	}
	return args, environment
}

// vllm finds vLLM.
func (c *upCommand) vllm(ctx context.Context, s *cell.Spec) (err error) {
	args, err := shellWords(c.VLLMArgs)
	if err != nil {
		return invalid("quote as in a shell: --vllm-args \"--dtype float32 --override '{}'\"", "--vllm-args: %w", err)
	}
	if s.VLLM, err = cell.FindVLLM(ctx, c.Venv); err != nil {
		return err
	}
	s.VLLM.Args = args
	return nil
}

func (c *upCommand) model(s *cell.Spec) (err error) {
	if c.Model == "" && c.Engine == "vllm" {
		return invalid("--model DIR is a Hugging Face directory, --model NAME one that vLLM finds by itself", "vLLM needs a model")
	}
	s.Model = cmp.Or(c.Model, s.Model)
	if info, problem := os.Stat(s.Model); problem == nil && info.IsDir() {
		if s.Model, err = filepath.Abs(s.Model); err != nil {
			return err
		}
		s.ServedName = filepath.Base(s.Model)
		return nil
	}
	switch named := strings.HasPrefix(s.Model, ".") || filepath.IsAbs(s.Model); {
	case c.Engine == "vllm" && named:
		return invalid("--model takes a directory, or a name such as Qwen/Qwen3-0.6B", "there is no directory %s", s.Model)
	case c.Engine != "vllm" && strings.ContainsRune(s.Model, filepath.Separator):
		return invalid("--model takes tiny, small, or a directory with config.json, safetensors and tokenizer.json", "there is no directory %s", s.Model)
	}
	return nil
}

// cuts reads how workers are cut and how many there are.
func (c *upCommand) cuts(s *cell.Spec) (err error) {
	for _, side := range []struct {
		flag, text, example string
		cut                 *cell.Cut
	}{{"--prefill", c.Prefill, "tp=2,pp=1,block=16", &s.Prefill}, {"--decode", c.Decode, "tp=4,pp=2,block=64", &s.Decode}} {
		switch {
		case side.text == "":
		case c.Engine == "vllm":
			*side.cut, err = side.cut.With(side.text)
		default:
			*side.cut, err = cell.ParseCut(side.text)
		}
		if err != nil {
			return invalid("a cut is written as "+side.example, "%s: %w", side.flag, err)
		}
	}
	if c.Workers != "" {
		if s.Workers, err = cell.ParseWorkers(c.Workers); err != nil {
			return invalid("2x3 is two that prefill and three that decode", "--workers: %w", err)
		}
	}
	return nil
}

// fill takes addresses from the configuration, if it names some.
func (c *upCommand) fill(in *config.Loaded) {
	if in.Origin("gateway.listen") != config.Default {
		c.Listen = cmp.Or(c.Listen, in.Gateway.Listen)
	}
	if in.Origin("gateway.admin_listen") != config.Default {
		c.Admin = cmp.Or(c.Admin, in.Gateway.AdminListen)
	}
}

// globals are the flags of every command, for the parts.
func (c *commands) globals() []string {
	var flags []string
	for _, f := range []struct{ name, value string }{{"--config", c.Config}, {"--log-level", c.LogLevel}, {"--log-format", c.LogFormat}} {
		if f.value != "" {
			flags = append(flags, f.name, f.value)
		}
	}
	return flags
}

func (c *upCommand) Run(std *stdio, all *commands) error {
	if c.JSON && !c.Demo {
		return invalid("`meridian status --json` tells of a running cell", "--json is for --demo")
	}
	in, err := all.load(std)
	if err != nil {
		return err
	}
	interrupts := listenForInterrupts()
	defer interrupts.close()
	spec, err := c.spec(interrupts.stop, in)
	if err != nil {
		return err
	}
	c.fill(in)
	dir, err := stateDir(c.State, std, all)
	if err != nil {
		return err
	}
	entrance, err := newEntrance(in.Config)
	if err != nil {
		return err
	}
	operator, err := adminClient(in.Config)
	if err != nil {
		return err
	}
	began := time.Now()
	display := newStartDisplay(std, c.JSON)
	running, err := cell.Open(interrupts.stop, cell.Options{
		StateDir: dir, Spec: spec, Listen: c.Listen, Admin: c.Admin, Globals: all.globals(), LogJSON: all.logOptions(in.Config).Format == "json", NoRestart: c.NoRestart,
		Kill: interrupts.kill, Watch: display.show, Operator: operator,
	})
	if errors.Is(err, context.Canceled) {
		display.say("stopped before it was ready")
		return &failure{err: errors.New("interrupted while the cell was starting"), status: exitFailure}
	}
	if err != nil {
		return err
	}
	display.started(time.Since(began))
	if c.Demo {
		err = c.demonstrate(interrupts.stop, std, display, running, entrance.client(running.Record().Gateway))
		display.quiet()
	} else {
		c.screen(display.w, running, entrance, all.Config)
		if c.Open {
			openPage(display.w, pageOf(running.Record().Admin))
		}
		<-interrupts.stop.Done()
		display.say("\nstopping; Ctrl-C again kills")
	}
	return errors.Join(err, running.Close(interrupts.kill))
}

// stateDir is the one that flag or configuration name, or the default one.
func stateDir(flag string, std *stdio, all *commands) (string, error) {
	loaded, err := all.load(std)
	if err != nil {
		return "", err
	}
	flags := cellFlags{State: flag}
	err = flags.fill(loaded.Config)
	return flags.State, err
}

// calledAs is what to type for this program: its name where the shell finds it
// by that, else as it was called.
func calledAs() string {
	name := filepath.Base(os.Args[0])
	if path, err := exec.LookPath(name); err == nil && path != os.Args[0] {
		return name
	}
	return os.Args[0]
}

// screen tells a person what to do with the cell.
func (c *upCommand) screen(w io.Writer, running *cell.Cell, entrance *gatewayAccess, configuration string) {
	r, spec := running.Record(), running.Spec()
	me, state := calledAs(), ""
	if configuration != "" {
		me += " --config " + quoted(configuration)
	}
	if c.State != "" { // which another terminal does not know
		state = " --state " + quoted(running.StateDir())
	}
	fmt.Fprintf(w, `
  API     %s/v1
  page    %s
  admin   %s
  try     %s
  chat    %s chat%s
  look    %s status%s
          %s logs -f%s
  logs    %s/logs
  stop    Ctrl-C, or: %s down%s

`, r.Gateway, pageOf(r.Admin), r.Admin, entrance.curl(r.Gateway, cmp.Or(spec.ServedName, spec.Model)), me, state, me, state, me, state, running.StateDir(), me, state)
}

// demonstrate runs the load and prints the report, the verdict last.
func (c *upCommand) demonstrate(ctx context.Context, std *stdio, display *startDisplay, running *cell.Cell, gateway *openaiclient.Client) error {
	models, err := gateway.Models(ctx)
	if err != nil {
		return err
	}
	if len(models) == 0 {
		return errors.New("the gateway has no model; `meridian logs gateway` may tell why")
	}
	const alone = "alone"
	workers := make(map[string]*openaiclient.Client)
	for _, p := range running.Record().Parts {
		if p.Kind == cell.Decode && running.Spec().Store != "0" {
			workers[p.Name] = &openaiclient.Client{URL: p.URL}
		}
	}
	if len(workers) < 2 { // the one engine computed the first turn's prompt itself: it has nothing to find
		workers = nil
	}
	report, err := demo.Run(ctx, demo.Options{
		Gateway: gateway, StateDir: running.StateDir(), Model: models[0].ID, MaxTokens: models[0].MaxModelLen, Reasoning: running.Spec().Reasoning,
		Greedy: running.Spec().VLLM != nil, Received: running.HandedTokens, Workers: workers, FoundTokens: running.FoundTokens,
		Alone: func(ctx context.Context) (*openaiclient.Client, error) {
			plan, err := running.Spec().Alone(alone)
			if err != nil {
				return nil, err
			}
			engine, err := running.Add(ctx, plan)
			return &openaiclient.Client{URL: engine.URL}, err
		},
		Tell: display.stage,
	})
	display.finishStage()
	if report != nil && c.JSON {
		err = errors.Join(err, std.writeJSON(report))
	} else if report != nil {
		err = errors.Join(report.Write(std.out), err)
	}
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintln(std.out, report.Verdict())
	}
	if !report.Equal() {
		return &failure{err: errors.New("the cell and one engine alone gave different tokens"), status: exitFailure}
	}
	return nil
}

// interrupts are what a person says with Ctrl-C: once to stop, twice to kill.
type interrupts struct {
	stop, kill context.Context
	close      func()
}

func listenForInterrupts() *interrupts {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup wants it to go on
		signal.Notify(signals, syscall.SIGHUP)
	}
	stop, stopNow := context.WithCancel(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		for _, tell := range []context.CancelFunc{stopNow, killNow} {
			select {
			case <-signals:
				tell()
			case <-over:
				return
			}
		}
	}()
	return &interrupts{stop: stop, kill: kill, close: func() {
		signal.Stop(signals)
		close(over)
		stopNow()
		killNow()
	}}
}
