package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"meridian/run/node"
	"meridian/see/doctor"
	"meridian/see/history"
)

type doctorCommand struct {
	State string `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory of agents whose tiers are looked at (default: agent.state_dir of the configuration)."`
	JSON  bool   `help:"Print one JSON object."`
}

func (c *doctorCommand) Run(io *stdio, all *commands) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	report := doctor.Examine(ctx, doctor.ThisHost(func(ctx context.Context) ([]doctor.Tier, error) {
		dir, err := stateDir(c.State, io, all)
		if err != nil {
			return nil, err
		}
		return tiersOfAgents(ctx, dir)
	}))
	if c.JSON {
		return io.writeJSON(report)
	}
	return report.WriteText(io.out)
}

// readyTimeout is how long an agent may take to tell how it stands.
const readyTimeout = 2 * time.Second

// tiersOfAgents are the tiers of this user's agents that run, and which agents do not answer.
func tiersOfAgents(ctx context.Context, dir string) (tiers []doctor.Tier, silent error) {
	names, err := history.Agents(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		ready, err := history.Get[node.Readiness](ctx, history.AdminSocket(dir, name), "/ready")
		cancel()
		switch {
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, history.ErrNoRecord): // it was killed, or is of an earlier version
			continue
		case err != nil:
			silent = errors.Join(silent, err)
		}
		for _, t := range ready.Tiers {
			tiers = append(tiers, doctor.Tier{Agent: name, Name: t.Name, Problem: t.Problem})
		}
	}
	return tiers, silent
}
