package cell

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"meridian/kv"
)

// Kind is what a part does.
type Kind string

// The kinds of parts.
const (
	Directory Kind = "directory"
	Agent     Kind = "agent"
	Prefill   Kind = "prefill"
	Decode    Kind = "decode"
	Both      Kind = "both" // an engine that serves alone
	Gateway   Kind = "gateway"
	Beside    Kind = "beside" // stands beside the cell, for a comparison
)

// Spec says what a cell is made of.
type Spec struct {
	// Model is one that engines bring along, or a directory.
	Model string
	// ServedName is what requests call it; empty means Model.
	ServedName string
	// Seed is what the weights of a built-in model come from.
	Seed            uint64
	Prefill, Decode Cut
	Workers         Workers
	// Reasoning has the engines play a model that thinks.
	Reasoning bool
	// DirectTokens is how long a prompt may be that is computed where it is
	// decoded; 0 leaves that to the gateway.
	DirectTokens int
	// Store is the memory that each agent has for objects of the cache, as flags
	// say it; empty leaves that to the configuration.
	Store string
	// Blocks is how many blocks of KV memory each reference engine has; 0 leaves that to it.
	Blocks int
	// MaxRunning is how many answers each reference engine computes at a time; 0 leaves that to it.
	MaxRunning int
	// AgentEnvironment is added to what an agent has, by the agent's name: tiers of its own.
	AgentEnvironment map[string][]string
	// VLLM has the workers be servers of vLLM; nil means reference engines.
	VLLM *VLLM
}

// DefaultDirectTokens is less than a gateway's: engines that compute a prompt
// with a processor take longer than moving its cache within the machine does.
const DefaultDirectTokens = 16

// DefaultSpec differs between its sides in everything that makes a hand-off
// interesting.
func DefaultSpec() Spec {
	return Spec{
		Model: "small", Prefill: Cut{TP: 2, PP: 1, BlockTokens: 16, Layout: "LBHNC"}, Decode: Cut{TP: 4, PP: 2, BlockTokens: 64, Layout: "LBHNC"},
		Workers: Workers{Prefill: 2, Decode: 2}, Reasoning: true, DirectTokens: DefaultDirectTokens,
	}
}

// DefaultVLLMSpec has two servers with equal blocks: on a CPU vLLM packs the
// cache within a block, so that caches of other blocks do not fit.
func DefaultVLLMSpec() Spec {
	cut := Cut{TP: 1, PP: 1, BlockTokens: 32, Layout: vllmLayout}
	return Spec{Prefill: cut, Decode: cut, Workers: Workers{Prefill: 1, Decode: 1}, DirectTokens: DefaultDirectTokens}
}

func (s Spec) servedName() string { return cmp.Or(s.ServedName, s.Model) }

// Cut is how an engine cuts the model over its ranks and keeps its cache.
type Cut struct {
	TP, PP, BlockTokens int
	Layout              string
}

func (c Cut) String() string {
	return fmt.Sprintf("tp=%d,pp=%d,block=%d,layout=%s", c.TP, c.PP, c.BlockTokens, c.Layout)
}

// ParseCut reads "tp=4,pp=2,block=64,layout=LBHNC"; what is left out is as in
// the first default: one rank, blocks of 16 tokens.
func ParseCut(text string) (Cut, error) {
	return Cut{TP: 1, PP: 1, BlockTokens: 16, Layout: "LBHNC"}.With(text)
}

// With is the cut as it is but for what text says.
func (c Cut) With(text string) (Cut, error) {
	var seen []string
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || slices.Contains(seen, name) {
			return c, fmt.Errorf("%q in %q: want NAME=VALUE, each name at most once", part, text)
		}
		seen = append(seen, name)
		var err error
		switch name {
		case "tp":
			c.TP, err = parseCount(value, maxDegree)
		case "pp":
			c.PP, err = parseCount(value, maxDegree)
		case "block":
			c.BlockTokens, err = parseCount(value, maxBlockTokens)
		case "layout":
			c.Layout = value
			_, err = kv.ParseLayout(value)
		default:
			err = fmt.Errorf("unknown name %q: there are tp, pp, block and layout", name)
		}
		if err != nil {
			return c, fmt.Errorf("%q in %q: %w", part, text, err)
		}
	}
	return c, nil
}

// Workers is how many engines prefill and how many decode.
type Workers struct{ Prefill, Decode int }

func (w Workers) String() string { return fmt.Sprintf("%dx%d", w.Prefill, w.Decode) }

// ParseWorkers reads "2x3": two that prefill, three that decode.
func ParseWorkers(text string) (Workers, error) {
	left, right, found := strings.Cut(text, "x")
	if !found {
		return Workers{}, fmt.Errorf("%q: want PREFILLxDECODE, such as 2x3", text)
	}
	var w Workers
	var err error
	if w.Prefill, err = parseCount(left, maxWorkers); err != nil {
		return Workers{}, fmt.Errorf("%q: %w", text, err)
	}
	if w.Decode, err = parseCount(right, maxWorkers); err != nil {
		return Workers{}, fmt.Errorf("%q: %w", text, err)
	}
	return w, nil
}

const (
	maxDegree      = 1 << 10
	maxBlockTokens = 1 << 20
	maxWorkers     = 64
)

func parseCount(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, most)
	}
	return n, nil
}

func (s Spec) validate() error {
	if s.Model == "" {
		return fmt.Errorf("cell: no model; name a built-in one or a directory")
	}
	for _, side := range []struct {
		kind    Kind
		cut     Cut
		workers int
	}{{Prefill, s.Prefill, s.Workers.Prefill}, {Decode, s.Decode, s.Workers.Decode}} {
		if side.workers < 1 || side.workers > maxWorkers {
			return fmt.Errorf("cell: %d workers to %s, must be 1…%d", side.workers, side.kind, maxWorkers)
		}
		if _, err := ParseCut(side.cut.String()); err != nil {
			return fmt.Errorf("cell: %s: %w", side.kind, err)
		}
	}
	if s.VLLM != nil {
		return s.VLLM.validate(s)
	}
	return nil
}

// Engine is what a worker is made of.
type Engine string

// EngineVLLM is vLLM; where nothing is said, it is the reference engine.
const EngineVLLM Engine = "vllm"

// Plan is one process to run.
type Plan struct {
	Name   string
	Kind   Kind
	Engine Engine
	// Command is the program and what stands before Args; empty means what all
	// parts are made of.
	Command []string
	// Args begin with the command's name.
	Args []string
	// Environment is added to what this process has.
	Environment []string
	// Ready is how the line begins by which the process says that it is
	// ready: a regular expression. One that says nothing is ready when Health
	// answers; URL is where it serves.
	Ready       string
	Health, URL string
	// Patience is how long it may take until it is ready; 0 means as long as
	// Options say.
	Patience time.Duration
}

// places is where the parts of a cell are.
type places struct {
	state         string
	listen, admin string
	drain         time.Duration // of the gateway
}

// stages lists what is started, together what can be.
func (s Spec) stages(at places) ([][]Plan, error) {
	state := []string{"--state", at.state}
	// Whatever the configuration says of directories, a cell has its own.
	member := []string{"--state", at.state, "--directory", "unix://" + filepath.Join(at.state, "directory.sock")}
	agent := func(name string) Plan {
		args := append([]string{"agent", "--name", name, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--require-leg"}, member...)
		if s.Store != "" {
			args = append(args, "--store", s.Store)
		}
		return Plan{Name: "agent-" + name, Kind: Agent, Args: args, Environment: s.AgentEnvironment[name], Ready: "agent " + regexp.QuoteMeta(name) + " ready"}
	}
	workers, err := s.workers(at)
	if err != nil {
		return nil, err
	}
	gateway := append([]string{"gateway", "--listen", at.listen, "--admin", at.admin, "--drain", at.drain.String()}, member...)
	if s.DirectTokens > 0 {
		gateway = append(gateway, "--direct-tokens", strconv.Itoa(s.DirectTokens))
	}
	return [][]Plan{
		{{Name: "directory", Kind: Directory, Args: append([]string{"directory"}, state...), Ready: "directory ready at "}},
		{agent(string(Prefill)), agent(string(Decode))},
		workers,
		{{Name: "gateway", Kind: Gateway, Args: gateway, Ready: "gateway ready at "}},
	}, nil
}

func (s Spec) workers(at places) (engines []Plan, err error) {
	if s.VLLM != nil {
		return s.servers(at)
	}
	add := func(kind Kind, cut Cut, workers int) {
		for i := range workers {
			engines = append(engines, s.engine(fmt.Sprintf("%s-%d", kind, i), kind, cut, []string{"--agent", string(kind), "--state", at.state}))
		}
	}
	add(Prefill, s.Prefill, s.Workers.Prefill)
	add(Decode, s.Decode, s.Workers.Decode)
	return engines, nil
}

func (s Spec) engine(id string, kind Kind, cut Cut, more []string) Plan {
	args := []string{
		"engine", "--id", id, "--role", string(kind), "--listen", "127.0.0.1:0", "--model", s.Model, "--seed", strconv.FormatUint(s.Seed, 10),
		"--tp", strconv.Itoa(cut.TP), "--pp", strconv.Itoa(cut.PP), "--block", strconv.Itoa(cut.BlockTokens), "--layout", cmp.Or(cut.Layout, "LBHNC"),
	}
	if s.ServedName != "" {
		args = append(args, "--served-model-name", s.ServedName)
	}
	if s.Blocks > 0 {
		args = append(args, "--blocks", strconv.Itoa(s.Blocks))
	}
	if s.MaxRunning > 0 {
		args = append(args, "--max-running", strconv.Itoa(s.MaxRunning))
	}
	if s.Reasoning {
		args = append(args, "--reasoning")
	}
	return Plan{Name: id, Kind: kind, Args: append(args, more...), Ready: "engine " + regexp.QuoteMeta(id) + " ready at "}
}

// Alone is an engine of the same model that serves by itself: one rank, no
// agent, nothing handed over.
func (s Spec) Alone(id string) (Plan, error) {
	if s.VLLM != nil {
		return s.VLLM.Serve(Server{
			Name: id, Kind: Both, Model: s.Model, ServedName: s.servedName(), Cut: Cut{TP: 1, PP: 1, BlockTokens: s.Decode.BlockTokens},
			Together: s.Workers.Prefill + s.Workers.Decode + 1,
		})
	}
	return s.engine(id, Both, Cut{TP: 1, PP: 1, BlockTokens: 16}, []string{"--no-door"}), nil
}
