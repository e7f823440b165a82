package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"meridian/see/history"
	"meridian/serve/governing"
)

type phasesCommand struct {
	State string        `placeholder:"DIR" env:"MERIDIAN_STATE" help:"Directory of sockets and data (default: agent.state_dir of the configuration)."`
	Agent string        `placeholder:"NAME" help:"Ask this agent only (default: every agent of this user)."`
	Watch bool          `help:"Go on and show it anew every so often, until Ctrl-C; what is no terminal gets one after the other."`
	Every time.Duration `default:"2s" help:"How often, with --watch (default: ${default})."`
	JSON  bool          `help:"Print one JSON object, or with --watch one a line."`
}

func (c *phasesCommand) Help() string {
	return "Shows the requests of the engines that this machine's agents govern, as they stand: in which phase each is, how many tokens its thought has of how many it may have, " +
		"how undecided the model was at its last token and on the average, in nats, and what was last decided about it, and why. Engines that do not tell of their steps are not among them.\n\n" +
		"  meridian phases\n  meridian phases --watch --every 1s\n  meridian phases --json | jq '.agents[].engines[].requests[] | select(.phase == \"think\")'\n"
}

// governedAgent is what one agent tells of the engines that it governs.
type governedAgent struct {
	Agent   string             `json:"agent"`
	Engines []governing.Engine `json:"engines"`
	// Problem is why it tells nothing.
	Problem string `json:"problem,omitempty"`
}

func (c *phasesCommand) Run(std *stdio, all *commands) error {
	state, err := stateDir(c.State, std, all)
	if err != nil {
		return err
	}
	if c.Watch && c.Every < minEvery {
		return invalid("say --every 1s or so", "--every %v is too often; %v is the least", c.Every, minEvery)
	}
	ctx, cancel := untilStopped()
	defer cancel()
	for {
		agents, err := c.read(ctx, state)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !c.Watch:
			return err
		case err != nil:
			agents = []governedAgent{{Problem: err.Error()}}
		}
		if err := c.show(std, agents); err != nil || !c.Watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
	}
}

// read asks the agents. That none is there is an error; that one does not answer is told.
func (c *phasesCommand) read(ctx context.Context, state string) ([]governedAgent, error) {
	names, err := agentsMeant(c.Agent, state)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, &failure{err: fmt.Errorf("no agent runs here, by %s", state), hint: "`meridian agent` starts one, --state names another directory", status: exitFailure}
	}
	agents := []governedAgent{}
	var last error
	for _, name := range names {
		told := governedAgent{Agent: name, Engines: []governing.Engine{}}
		engines, err := history.Get[[]governing.Engine](ctx, history.AdminSocket(state, name), "/phases")
		if err != nil {
			told.Problem, last = err.Error(), errors.Join(last, err)
		} else {
			told.Engines = engines
		}
		agents = append(agents, told)
	}
	if len(names) == 1 && last != nil {
		return nil, last
	}
	return agents, nil
}

func (c *phasesCommand) show(std *stdio, agents []governedAgent) error {
	if c.JSON {
		return std.writeJSON(map[string]any{"agents": agents})
	}
	if c.Watch {
		if std.terminal {
			fmt.Fprint(std.out, "\x1b[H\x1b[2J") // home, and all cleared
		}
		fmt.Fprintf(std.out, "%s\n", time.Now().Format(time.RFC3339))
	}
	if err := printPhases(std.out, agents); err != nil {
		return err
	}
	if c.Watch && !std.terminal {
		fmt.Fprintln(std.out)
	}
	return nil
}

// printPhases writes what agents told, for people. Engines wrote the names.
func printPhases(to io.Writer, agents []governedAgent) error {
	engines := 0
	for _, a := range agents {
		if a.Problem != "" {
			fmt.Fprintf(to, "%s: %s\n", oneLine(a.Agent), printable(a.Problem))
		}
		for i := range a.Engines {
			engines++
			e := &a.Engines[i]
			forces := ""
			if !e.Forces {
				forces = ", ends no thoughts"
			}
			fmt.Fprintf(to, "%s of agent %s: model %s, policy %s, %d running, %d waiting, %d steps%s\n", oneLine(e.Name), oneLine(a.Agent), oneLine(e.Model), e.Policy, e.Running, e.Waiting, e.Steps, forces)
			if e.Contradictions > 0 {
				fmt.Fprintf(to, "  %d facts did not fit, the last: %s\n", e.Contradictions, printable(e.Contradiction))
			}
			if err := printRequests(to, e.Requests); err != nil {
				return err
			}
		}
	}
	if engines == 0 {
		fmt.Fprintln(to, "no engine is governed: none tells of its steps, or governor.enabled is false")
	}
	return nil
}

func printRequests(to io.Writer, requests []governing.Request) error {
	if len(requests) == 0 {
		return nil
	}
	table := newTable(to, "  REQUEST\tPHASE\tSTATE\tAGE\tPROMPT\tTHINK\tCAP\tOUTPUT\tENTROPY\tMEAN\tDECIDED\tWHY")
	for i := range requests {
		r := &requests[i]
		name, capped, decided := oneLine(r.ID), "–", "run"
		if strings.TrimSpace(name) == "" {
			name = fmt.Sprintf("#%d", r.Sequence)
		}
		if r.Cap > 0 {
			capped = fmt.Sprint(r.Cap)
		}
		if r.Decided != "" {
			decided = fmt.Sprintf("%s %s ago", r.Decided, time.Duration(r.DecidedSeconds*float64(time.Second)).Round(10*time.Millisecond))
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%d\t%d\t%s\t%d\t%s\t%s\t%s\t%s\n", name, r.Phase, r.State, time.Duration(r.AgeSeconds*float64(time.Second)).Round(100*time.Millisecond),
			r.Prompt, r.Think, capped, r.Output, nats(r.Entropy), nats(r.Mean), decided, r.Reason)
	}
	return table.Flush()
}

func nats(n *float64) string {
	if n == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *n)
}
