package main

import (
	"context"
	"fmt"
	"time"

	"meridian/keep/prefix/survey"
	"meridian/keep/store"
	"meridian/run/node"
)

type cacheFindCommand struct {
	storeFlags
	timeoutFlag
	promptFlags
	JSON bool `help:"Print one JSON object."`
}

func (c *cacheFindCommand) Help() string {
	return "Tells what an engine that asks for a prompt would be told: how many of its tokens are at hand, which owner has them and in which tier, at which token the cached path ends, and why. " +
		"It is a look and no more: nothing is leased, brought to memory or counted as use. The engine itself says which tokens the prompt has (/tokenize), and its home agent what its pieces are. " +
		"The engine's own prefix cache is not looked at, and sums are verified only when a prefix is fetched.\n\n" +
		"  meridian cache find 'Once upon a time there was a harbour'\n  meridian cache find --tokens 1,2,3 --engine server-8100 --json\n"
}

func (c *cacheFindCommand) Run(std *stdio, all *commands) error {
	text, err := c.text(std)
	if err != nil {
		return err
	}
	return c.visiting(std, all, c.Timeout, func(ctx context.Context, n *node.Agent) error {
		look, err := c.look(ctx, std, n, text)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return std.writeJSON(look)
		}
		return tellLook(std, look)
	})
}

func tellLook(std *stdio, l *survey.Look) error {
	fmt.Fprintf(std.out, "engine %s at agent %s, model %s, tenant %s\n", oneLine(l.Engine), oneLine(l.Home), oneLine(l.Model), oneLine(l.Tenant))
	fmt.Fprintf(std.out, "found %d of %d tokens, in pieces of %d\n", l.Found, l.Tokens, l.UnitTokens)
	if len(l.Pieces) > 0 {
		table := newTable(std.out, "\n  TOKENS\tOWNER\tTIER\tPIECES\tBYTES\tNOT USED FOR\tPINNED")
		for _, p := range l.Pieces {
			size, age := "–", "–"
			if p.Tier == store.Memory {
				size, age = fmt.Sprint(p.Bytes), (time.Duration(p.OldestSeconds) * time.Second).String()
			}
			fmt.Fprintf(table, "  %d–%d\t%s\t%s\t%d\t%s\t%s\t%d\n", p.Start, p.End-1, oneLine(p.Owner), oneLine(p.Tier), p.Units, size, age, p.Pinned)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(std.out)
	}
	at := ""
	if l.At != "" {
		at = " (owner " + oneLine(l.At) + ")"
	}
	fmt.Fprintf(std.out, "the cached path ends at token %d: %s%s\n", l.Found, l.Why, at)
	for _, s := range l.Silent {
		fmt.Fprintf(std.out, "owner %s was asked and did not answer: %s\n", oneLine(s.Name), oneLine(s.Why))
	}
	tellAnswer(std, l)
	return nil
}

// tellAnswer says what Find would answer, and what is known of the times.
func tellAnswer(std *stdio, l *survey.Look) {
	took := func(us float64) string {
		if us == 0 {
			return "a time that is not known yet"
		}
		return time.Duration(us * float64(time.Microsecond)).Round(10 * time.Microsecond).String()
	}
	switch l.Answer {
	case "miss":
		fmt.Fprintln(std.out, "Find would answer: nothing; all of it is computed")
	case "compute":
		fmt.Fprintf(std.out, "Find would answer: compute; to fetch takes %s, to compute %s (every sixteenth is fetched all the same)\n", took(l.FetchUs), took(l.ComputeUs))
	default:
		fmt.Fprintf(std.out, "Find would answer: fetch %d tokens; to fetch takes %s, to compute %s\n", l.Found, took(l.FetchUs), took(l.ComputeUs))
	}
}
