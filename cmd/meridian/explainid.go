package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver/handoff"
	"meridian/run/cell"
	"meridian/see/history"
	"meridian/see/ledger"
)

var (
	errAmbiguous = errors.New("several ids begin so")
	errShort     = fmt.Errorf("too short for the beginning of an id, of which %d digits are needed", cell.MinIDDigits)
)

// beginning is the beginning of an id; one that is too short is a guess.
var beginning = regexp.MustCompile(`^[0-9a-f]{1,31}$`)

// meant is the id that a person means: a whole one, the beginning of one that is
// remembered, or that of the request that its client called so.
func (e *explanation) meant(ctx context.Context, text string) (kv.ID, error) {
	id, problem := kv.ParseID(text)
	if problem == nil {
		return id, nil
	}
	if record, err := ledger.FindIn(e.dir, text); err == nil {
		return kv.ParseID(record.ID)
	} else if !errors.Is(err, ledger.ErrNoRecord) {
		return kv.ID{}, err
	}
	if !beginning.MatchString(text) {
		return kv.ID{}, problem
	}
	found, err := e.beginningWith(ctx, text)
	switch {
	case err != nil:
		return kv.ID{}, err
	case len(text) < cell.MinIDDigits && len(found) == 0:
		return kv.ID{}, invalid("`meridian explain` without an id lists the last requests", "%q is %w; nothing that is remembered begins so", text, errShort)
	case len(text) < cell.MinIDDigits:
		return kv.ID{}, invalid("say more of it", "%q is %w; these begin so: %s", text, errShort, strings.Join(found, ", "))
	case len(found) == 0:
		return kv.ID{}, fmt.Errorf("nothing that is remembered has an id that begins with %s", text)
	case len(found) > 1:
		return kv.ID{}, invalid("say more of it", "%w with %s: %s", errAmbiguous, text, strings.Join(found, ", "))
	}
	return kv.ParseID(found[0])
}

// maxSimilar is how many ids that begin alike are told.
const maxSimilar = 8

func (e *explanation) beginningWith(ctx context.Context, prefix string) ([]string, error) {
	found, err := ledger.WithPrefixIn(e.dir, prefix, maxSimilar)
	if err != nil {
		return nil, err
	}
	add := func(id kv.ID) {
		if text := id.String(); strings.HasPrefix(text, prefix) && len(found) < maxSimilar && !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	for _, name := range e.agents {
		// An agent that does not answer does not hide what the others know.
		transfers, _ := history.Get[[]agent.Record](ctx, history.AdminSocket(e.dir, name), "/transfers")
		for i := range transfers {
			add(transfers[i].ID)
		}
		handOffs, _ := history.Get[[]handoff.Record](ctx, history.AdminSocket(e.dir, name), "/handoffs")
		for i := range handOffs {
			add(handOffs[i].Transfer)
		}
	}
	moved, err := history.MovedIDs(e.dir, prefix, maxSimilar)
	for _, id := range moved {
		add(id)
	}
	return found, err
}
