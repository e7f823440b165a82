package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"meridian/keep/prefix/survey"
	"meridian/keep/store"
	"meridian/run/node"
)

// keysMeant is a prefix of keys, where the prompt is one.
func (c *promptFlags) keysMeant() (prefix string, is bool) {
	return c.Prompt, strings.HasPrefix(c.Prompt, survey.KeptKeys) && c.File == "" && len(c.Tokens) == 0 && !c.Chat
}

// maxKeysMeant bounds how many objects of a prefix are pinned or dropped by one command.
const maxKeysMeant = 1 << 20

// meant is what owners have of what is named: of a prefix of keys, or of a prompt, of which
// part says what.
func (c *promptFlags) meant(ctx context.Context, std *stdio, n *node.Agent, text string, part func(*survey.Look) map[string]store.Run) (map[string][]store.Run, error) {
	if prefix, is := c.keysMeant(); is {
		objects, err := n.Store.List(ctx, store.ListOptions{AllTenants: true, Prefix: prefix, Most: maxKeysMeant})
		if err != nil {
			return nil, err
		}
		return survey.ByKeys(objects), nil
	}
	look, err := c.look(ctx, std, n, text)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]store.Run)
	for owner, run := range part(look) {
		all[owner] = []store.Run{run}
	}
	return all, nil
}

// nothingMeant says that there is nothing to be done.
var nothingMeant = &failure{
	err: errors.New("the cell keeps nothing of it"), hint: "`meridian cache find` tells why; `meridian store ls kv/ --all-tenants` lists keys", status: exitFailure,
}

// tellChanges prints what was done, and says what was not.
func tellChanges(std *stdio, asJSON bool, done string, changes []survey.Change) error {
	var problem error
	for _, c := range changes {
		if !asJSON {
			fmt.Fprintf(std.out, "%s: %s %d pieces", oneLine(c.Owner), done, c.Units)
			if c.PinnedMost > 0 {
				fmt.Fprintf(std.out, "; %d of at most %d bytes are pinned there", c.PinnedBytes, c.PinnedMost)
			}
			fmt.Fprintln(std.out)
		}
		switch {
		case c.Problem != "":
			problem = errors.Join(problem, fmt.Errorf("%s: %s", oneLine(c.Owner), oneLine(c.Problem)))
		case c.Refused > 0:
			problem = errors.Join(problem, fmt.Errorf("%s: %d pieces are not pinned: no more than %d bytes may be", oneLine(c.Owner), c.Refused, c.PinnedMost))
		}
	}
	if asJSON {
		if err := std.writeJSON(map[string]any{"owners": changes}); err != nil {
			return err
		}
	}
	if problem != nil {
		return &failure{err: problem, hint: "`meridian cache pin --off` lets go of others, `meridian store stat` tells how owners stand", status: exitFailure}
	}
	return nil
}

type cachePinCommand struct {
	storeFlags
	timeoutFlag
	promptFlags
	Off  bool `help:"Let it be evicted again."`
	JSON bool `help:"Print one JSON object."`
}

func (c *cachePinCommand) Help() string {
	return "Keeps the pieces of a prompt that lie in the memory of owners from being evicted, from its beginning on, until --off, or until their owner ends. " +
		"No more than half of an owner's memory can be pinned: what is beyond is refused, and the exit status is 1. What lies on disk or in S3 is not pinned. " +
		"In the place of a prompt, kv/… means all pieces whose keys begin so; kv/ and the first 8 digits are one model's.\n\n" +
		"  meridian cache pin --chat --file system.json\n  meridian cache pin --off kv/1f2e3d4c\n"
}

func (c *cachePinCommand) Run(std *stdio, all *commands) error {
	text, err := c.text(std)
	if err != nil {
		return err
	}
	return c.visiting(std, all, c.Timeout, func(ctx context.Context, n *node.Agent) error {
		runs, err := c.meant(ctx, std, n, text, (*survey.Look).InMemory)
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			return nothingMeant
		}
		var changes []survey.Change
		for _, owner := range slices.Sorted(maps.Keys(runs)) {
			changes = append(changes, n.Survey.Pin(ctx, owner, runs[owner], !c.Off))
		}
		return tellChanges(std, c.JSON, map[bool]string{false: "pinned", true: "let go of"}[c.Off], changes)
	})
}

type cacheDropCommand struct {
	storeFlags
	timeoutFlag
	promptFlags
	From *int `placeholder:"TOKEN" help:"Drop from this token on, in whole pieces; what comes before stays."`
	All  bool `help:"Drop all of it, from its first token on."`
	Yes  bool `help:"Do it; without, it is only told what would be dropped."`
	JSON bool `help:"Print one JSON object."`
}

func (c *cacheDropCommand) Help() string {
	return "Takes the pieces of a prompt away, from the memory of all owners and from their tiers. An engine that reads them goes on; the next one that asks computes. " +
		"Pieces are named by hashes of all tokens up to their end, so it is not known which other prompts begin alike: --from says what of the beginning stays for them, --all drops it too. " +
		"What went on after a dropped piece in other prompts is not found any more, and leaves in its turn. Engines keep what they have in their own memory, and may keep it here anew. " +
		"Without --yes it is only told what would be dropped. In the place of a prompt, kv/… means all pieces in memory whose keys begin so, with --all.\n\n" +
		"  meridian cache drop --from 512 --file prompt.txt         # what would be dropped\n  meridian cache drop --all --yes 'Once upon a time'\n"
}

func (c *cacheDropCommand) Run(std *stdio, all *commands) error {
	text, err := c.text(std)
	_, keys := c.keysMeant()
	switch {
	case err != nil:
		return err
	case (c.From != nil) == c.All:
		return invalid("other prompts may begin alike: --from 512 leaves the first 512 tokens", "say what to drop: --from TOKEN, or --all of it")
	case c.From != nil && (*c.From < 0 || keys):
		return invalid("a key prefix is dropped with --all", "--from is a token of a prompt, 0 or more")
	}
	from := given(c.From, 0)
	return c.visiting(std, all, c.Timeout, func(ctx context.Context, n *node.Agent) error {
		var look *survey.Look // of a prompt
		runs, err := c.meant(ctx, std, n, text, func(l *survey.Look) map[string]store.Run {
			look = l
			return l.From(from)
		})
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			return nothingMeant
		}
		if c.Yes && look != nil {
			return tellChanges(std, c.JSON, "dropped", n.Survey.DropFrom(ctx, look, from))
		}
		var changes []survey.Change
		for _, owner := range slices.Sorted(maps.Keys(runs)) {
			if c.Yes {
				changes = append(changes, n.Survey.Drop(ctx, owner, runs[owner]))
				continue
			}
			would := survey.Change{Owner: owner}
			for _, run := range runs[owner] {
				would.Units += len(run.Keys)
			}
			changes = append(changes, would)
		}
		if c.Yes {
			return tellChanges(std, c.JSON, "dropped", changes)
		}
		if !c.JSON {
			defer fmt.Fprintln(std.out, "nothing was dropped: --yes does it")
		}
		return tellChanges(std, c.JSON, "would drop", changes)
	})
}
