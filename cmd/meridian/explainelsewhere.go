package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
	"meridian/run/config"
	"meridian/see/history"
)

// gatherTimeout is how long the members of a cell are asked, and how long it may take
// to join them.
const gatherTimeout = 6 * time.Second

// maxIDBytes is how much others are asked to look for.
const maxIDBytes = 256

// gather asks everybody in the cell, as an agent that comes for one question.
func (c *explainCommand) gather(std *stdio, all *commands, id string) (*history.Gathered, error) {
	loaded, err := all.load(std)
	if err != nil {
		return nil, err
	}
	if loaded.Origin("logging.level") == config.Default {
		all = all.quieter("error") // its user does not care that an agent comes and goes
	}
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	wait := newWaiting(std.err, "asking the cell")
	defer wait.stop()
	n, err := shortAgent(ctx, std, all, agentFlags{cellFlags: c.cellFlags, Name: c.Name}, "explain", agentParts{})
	if err != nil {
		return nil, err
	}
	found, err := history.Gather(ctx, n.Questions, id)
	if problem := closeSoon(n.Close); err == nil {
		err = problem
	}
	return found, err
}

// text is an id that is one.
func (e *explanation) text(id kv.ID) string {
	if id == (kv.ID{}) {
		return ""
	}
	return id.String()
}

// isWhole reports whether what is known leaves nothing to ask others for: of every
// hand-off both sides, unless it is a transfer.
func (e *explanation) isWhole() bool {
	if e.err != nil {
		return false
	}
	if e.transfer != nil {
		return true
	}
	sides := make(map[kv.ID]map[handoff.Role]bool)
	for _, h := range e.handOffs {
		if sides[h.Transfer] == nil {
			sides[h.Transfer] = make(map[handoff.Role]bool)
		}
		sides[h.Transfer][h.As] = true
	}
	if e.request != nil {
		if len(e.prefixes) == 0 && usedCache(e.request) {
			return false
		}
		for _, text := range e.request.Transfers() {
			if id, err := kv.ParseID(text); err == nil && sides[id] == nil {
				return false
			}
		}
	}
	for _, known := range sides {
		if len(known) < 2 {
			return false
		}
	}
	return true
}

// addElsewhere takes what others remember. Where no member can be asked, what is known here
// has to do.
func (e *explanation) addElsewhere(found *history.Gathered, err error) error {
	if err != nil {
		if e.err != nil {
			e.err = fmt.Errorf("%w; and others of the cell could not be asked: %w", e.err, err)
		}
		return nil
	}
	e.silent = found.Silent
	if e.err != nil {
		if ids := found.IDs(); len(found.Requests) > 1 || len(found.Requests) == 0 && len(ids) > 1 && !found.OneHandOff() {
			return invalid("say more of it", "%w: %s", errAmbiguous, oneLine(strings.Join(limitedTo(ids, maxSimilar), ", ")))
		}
	}
	if e.request == nil && len(found.Requests) == 1 {
		e.request, e.err, e.partOf = &found.Requests[0], nil, ""
	}
	if e.transfer == nil || e.request != nil {
		for _, h := range found.HandOffs {
			e.addHandOff(h)
		}
	}
	if e.transfer == nil || e.request != nil {
		for _, p := range found.Prefixes {
			e.addPrefix(p)
		}
	}
	if len(e.handOffs) > 0 || len(e.prefixes) > 0 {
		e.err = nil
	}
	if e.request == nil && len(e.handOffs) == 0 && len(e.prefixes) == 0 && e.transfer == nil && len(found.Transfers) == 1 {
		e.transfer, e.err = &found.Transfers[0], nil
	}
	return nil
}

func limitedTo[T any](all []T, most int) []T { return all[:min(len(all), most)] }
