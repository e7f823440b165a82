package main

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/engine"
	"meridian/engine/token"
	"meridian/run/config"
	"meridian/serve/governing"
)

// governingOptions is what the configuration says to the governors of an agent's engines; nil:
// none is governed.
func governingOptions(in *config.Config, logger *slog.Logger) *governing.Options {
	if !in.Governor.Enabled {
		return nil
	}
	models := thinkers{in: in, logger: logger, known: make(map[string]governing.Model)}
	return &governing.Options{
		Policy: in.Scheduler.Policy,
		Scheduling: policy.Options{
			ThinkCap: tokens(in.Scheduler.MaxThinkTokens), ThinkBatchMultiplier: in.Scheduler.ThinkBatchMultiplier,
			ThinkTPOTBudget: milliseconds(in.Scheduler.ThinkTPOTBudgetMs), OutputTPOTBudget: milliseconds(in.Scheduler.OutputTPOTBudgetMs),
			StepBudget: milliseconds(in.Scheduler.ThinkTPOTBudgetMs),
		},
		PreemptMaxFraction: in.Scheduler.PreemptMaxFraction, Budget: *budget(in),
		Memory:    block.Options{ThinkFraction: in.KVMemory.ThinkPhaseMemoryFraction, Aggressive: in.KVMemory.AggressiveThinkEviction},
		BlockSize: in.KVMemory.BlockSize.Count, Capacity: in.KVMemory.Capacity.Count, OffloadThreshold: tokens(in.Disagg.OffloadThresholdBlocks),
		Wait: time.Duration(in.Governor.WaitUs) * time.Microsecond, Model: models.model,
	}
}

// tokens is a number of the configuration, as large as governors count.
func tokens(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// milliseconds is a time of the configuration, which may be a fraction; the least is a
// nanosecond, since 0 means the default to policies.
func milliseconds(ms float64) policy.Instant {
	return policy.Instant(max(1, min(ms*float64(policy.Millisecond), math.MaxInt64/2)))
}

// thinkers are the models of the configuration, as governors look for their thoughts.
type thinkers struct {
	in     *config.Config
	logger *slog.Logger

	mutex sync.Mutex
	known map[string]governing.Model // by the names of tables
}

// model is the one that an engine names. One without a table that is not built in, or whose
// markers cannot be looked for, does not think.
func (t *thinkers) model(name string) (governing.Model, error) {
	table, m, err := t.in.ModelOf(name)
	switch {
	case err != nil:
		return governing.Model{}, err
	case table == "": // those that reference engines bring along need none
		thoughts, texts := engine.Thoughts(name)
		return governing.Model{Phase: thoughts, Texts: texts}, nil
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if made, is := t.known[table]; is {
		return made, nil
	}
	var made governing.Model
	if made.Phase, err = phase.NewModel(m.Markers); err != nil {
		t.logger.Warn("the thoughts of a model cannot be told from its answers", "model", table, "error", err)
		made.Phase = nil
	} else if made.Phase.Thinks() {
		made.Texts = m.Markers.Texts
		if made.Texts == nil && m.TokenizerPath != "" {
			if tokenizer, err := token.OpenTokenizer(m.TokenizerPath); err == nil { // else every token may end a clause
				made.Texts = tokenizer.Text
			}
		}
	}
	t.known[table] = made
	return made, nil
}
