package main

import (
	"fmt"

	"meridian/decide/entropy"
	"meridian/decide/governor"
	"meridian/prove/replay/sweep"
	"meridian/run/config"
)

// budget is how long thoughts may be by a configuration.
func budget(c *config.Config) *governor.Budget {
	return &governor.Budget{
		MaxThinkTokens: tokens(c.Scheduler.MaxThinkTokens), Entropy: c.Entropy.Enabled,
		Probe: entropy.Options{
			Alpha: c.Entropy.EMAAlpha, EATVariance: c.Entropy.EATEMAVarianceThreshold, EATInterval: int(c.Entropy.EATProbeIntervalTokens),
			RPDI: c.Entropy.RPDIThreshold, Transition: c.Entropy.TransitionEntropyThreshold, MinThinkTokens: int(c.Scheduler.MinThinkTokens),
		},
	}
}

// thoughts is what ends thoughts in a replay, if anything but policies does.
func (c *replayWindow) thoughts() (*governor.Budget, error) {
	if c.Entropy == nil {
		return nil, nil
	}
	settings := config.Defaults()
	settings.Entropy.EMAAlpha = *c.Entropy
	b := budget(settings)
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("%w: --entropy %g: %w", sweep.ErrOptions, *c.Entropy, err)
	}
	return b, nil
}
