package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"meridian/engine/batch"
	"meridian/engine/model"
	"meridian/kv"
)

// Roles an engine may be meant for.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
	RoleBoth    = "both"
)

// Options configures Open.
type Options struct {
	// ID is the engine's, unique in its cell.
	ID string
	// Model is tiny, small, or a directory as Hugging Face has them; Seed rolls
	// the weights of the former two.
	Model string
	Seed  uint64
	// ServedName is what requests call the model; default the last part of Model.
	ServedName string
	// Reasoning: answers begin with a scripted thought.
	Reasoning bool

	TP, PP      int // ranks; default 1
	Layout      string
	BlockTokens int // default 16
	// Blocks is how many there are in each rank's memory; default as many as
	// DefaultKVBytes have room for, over all ranks.
	Blocks int
	// Threads is how many goroutines compute a step; default 1.
	Threads int

	MaxRunning int // answers computed at a time; default 64, for tiny 512
	MaxWaiting int // default 1024
	// StepTokens is how many tokens a step computes at most. A step is not
	// interrupted, so this bounds how long anything waits. Default 64, for tiny
	// 512, and never less than MaxRunning.
	StepTokens int
	// MaxBodyBytes is of an HTTP request; default 8 MiB.
	MaxBodyBytes int64
	// StallTimeout is how long a client may refuse to read, and how long its body
	// may take to come; default 30 s.
	StallTimeout time.Duration

	// Door is the socket of the agent; empty: serve alone.
	Door string
	// URL is where the engine's HTTP is reached, Role what it is meant for.
	URL, Role string
	// HandoffDeadline bounds how long a request waits for its cache before the
	// engine computes it itself; default 10 s.
	HandoffDeadline time.Duration

	// Governor decides who runs and how long thoughts are; nil: the agent at Door, if it
	// governs engines. The engine closes it.
	Governor Governor
	// Ungoverned: the agent is not asked.
	Ungoverned bool
	// GovernorWait is how long a plan waits for a decision; 0: as long as the governor
	// says. A long one makes a run the same each time.
	GovernorWait time.Duration
	// Trace is what scripted thoughts play; nil: nothing.
	Trace *Trace

	// OnStep is told of every step, by the step loop, which waits for it: for tests
	// and benchmarks of the engine.
	OnStep func(Step)

	Logger *slog.Logger

	// patience is how long the cell is asked, and what it has is waited for; 0: findPatience and
	// refetchPatience. A test of what comes back gives more: its machine may be busy.
	patience time.Duration
}

// DefaultKVBytes is how much KV memory an engine has where no option says, over all
// ranks. Pages that were never written take no memory.
const DefaultKVBytes = 256 << 20

func (o Options) withDefaults() (Options, error) {
	if o.ID == "" || o.Model == "" {
		return o, errors.New("engine: Options needs an ID and a Model")
	}
	o.Role = cmp.Or(o.Role, RoleBoth)
	if o.Role != RolePrefill && o.Role != RoleDecode && o.Role != RoleBoth {
		return o, fmt.Errorf("engine: role %q: there are prefill, decode and both", o.Role)
	}
	o.ServedName = cmp.Or(o.ServedName, filepath.Base(o.Model))
	o.TP, o.PP, o.BlockTokens, o.Threads = cmp.Or(o.TP, 1), cmp.Or(o.PP, 1), cmp.Or(o.BlockTokens, 16), cmp.Or(o.Threads, 1)
	o.Layout = cmp.Or(o.Layout, "LBHNC")
	running := 64
	if o.Model == "tiny" {
		running = 512
	}
	o.MaxRunning, o.MaxWaiting = cmp.Or(o.MaxRunning, running), cmp.Or(o.MaxWaiting, 1024)
	o.StepTokens = max(cmp.Or(o.StepTokens, running), o.MaxRunning)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 8<<20)
	o.StallTimeout, o.HandoffDeadline = cmp.Or(o.StallTimeout, 30*time.Second), cmp.Or(o.HandoffDeadline, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

// cut is how the model lies in memory.
func (o *Options) cut(c model.Config) (model.Cut, error) {
	layout, err := kv.ParseLayout(o.Layout)
	if err != nil {
		return model.Cut{}, err
	}
	cut := model.Cut{Parallelism: kv.Split(c.Layers, o.TP, o.PP), Layout: layout, BlockTokens: o.BlockTokens, Blocks: 1}
	if err := cut.Validate(c); err != nil {
		return cut, err
	}
	if o.Blocks == 0 {
		var oneBlock int64
		for rank := range cut.Parallelism.Ranks() {
			oneBlock += cut.MemoryBytes(c, rank)
		}
		o.Blocks = int(max(DefaultKVBytes/oneBlock, 1))
	}
	cut.Blocks = o.Blocks
	return cut, cut.Validate(c)
}

// worthFetching is how many tokens take about as long to compute as a hand-off.
const worthFetching = 17

// batch is the scheduler's part. It never refuses for want of a seat: Submit
// does.
func (o *Options) batch() batch.Options {
	return batch.Options{
		Blocks: o.Blocks, BlockTokens: o.BlockTokens, MaxRunning: o.MaxRunning,
		MaxWaiting: o.MaxWaiting + 2*o.MaxRunning + maxChoices, StepTokens: o.StepTokens, FetchTokens: worthFetching,
	}
}
