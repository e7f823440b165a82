package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"meridian/keep/prefix"
	"meridian/keep/prefix/survey"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/agent/peerquery"
	"meridian/move/transceiver/handoff"
	"meridian/see/history"
	"meridian/see/ledger"
)

type explainCommand struct {
	storeFlags
	tenantFlag
	ID    string `arg:"" optional:"" help:"Id of a request, of a transfer or of a hand-off, or how it begins; what a client called its request (X-Request-Id); or the key of an object. Without one, the last requests are listed."`
	All   bool   `help:"List everything that is remembered: requests, transfers and hand-offs."`
	Key   string `placeholder:"KEY" help:"Key of an object of the cache, also where it looks like an id."`
	Agent string `placeholder:"NAME" help:"Ask this agent only about transfers and hand-offs (default: every agent of this user)."`
	JSON  bool   `help:"Print one JSON object."`
}

func (c *explainCommand) Help() string {
	return "Tells what became of a request, of a transfer or of a hand-off. Requests are told from the gateway's records in the state directory, with the hand-offs " +
		"that they took part in below; transfers and hand-offs by the agents that run. What is not known here the agents and gateways of the whole cell are asked for, " +
		"from any of its hosts; with TLS, --name says whose certificate is shown. Of an object it tells where it lies, or why there is none, as its owners and their master say."
}

// latestListed is how many are listed where not everything is asked for.
const latestListed = 20

func (c *explainCommand) Run(std *stdio, all *commands) error {
	state, err := stateDir(c.State, std, all)
	if err != nil {
		return err
	}
	if c.Key != "" {
		return c.object(std, all, c.Key)
	}
	if strings.HasPrefix(c.ID, survey.KeptKeys) && c.Tenant == "" && c.Agent == "" && len(c.ID) <= maxIDBytes {
		if told, err := c.kept(std, all); told || err != nil {
			return err
		}
	}
	names, err := agentsMeant(c.Agent, state)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if c.ID == "" {
		return c.list(ctx, std, state, names)
	}
	e := explanation{dir: state, agents: names}
	id, err := e.meant(ctx, c.ID)
	switch {
	case errors.Is(err, errAmbiguous):
		return err
	case err == nil:
		e.of(ctx, id)
	default: // engines that no gateway is before call requests as they like
		if e.prefix(ctx, c.ID); len(e.prefixes) == 0 {
			e.err = err
		}
	}
	if c.Agent == "" && len(c.ID) <= maxIDBytes && !e.isWhole() && !errors.Is(err, errShort) {
		if err := e.addElsewhere(c.gather(std, all, cmp.Or(e.text(id), c.ID))); err != nil {
			return err
		}
	}
	if err != nil && e.err != nil {
		problem := c.object(std, all, c.ID)
		switch {
		case problem == nil:
			return nil
		case errors.Is(err, errShort):
			return err
		case errors.Is(problem, store.ErrMissing):
			return problem
		}
		return invalid("`meridian explain` without an id lists them, `meridian store ls` the keys of objects", "%w; and as a key: %w", err, problem)
	}
	return e.tell(std, c.JSON)
}

// agentsMeant is the agent that is named, or every agent of this user.
func agentsMeant(named, state string) ([]string, error) {
	if named != "" {
		return []string{named}, nil
	}
	return history.Agents(state)
}

// kept tells of a piece of a prefix, of any tenant: a tenant is a hash, which an operator does
// not know by heart. Told is false where no owner has it, or where none could be asked.
func (c *explainCommand) kept(std *stdio, all *commands) (told bool, err error) {
	found, err := c.gather(std, all, c.ID)
	if err != nil || len(found.Objects) == 0 {
		return false, nil // as the key of an object it has a reason
	}
	if ids := found.IDs(); len(ids) > 1 {
		return false, invalid("say more of it", "%w: %s", errAmbiguous, oneLine(strings.Join(limitedTo(ids, maxSimilar), ", ")))
	}
	tellSilent(std, found.Silent)
	if c.JSON {
		return true, std.writeJSON(map[string]any{"objects": found.Objects})
	}
	for i := range found.Objects {
		if _, err := io.WriteString(std.out, printable(found.Objects[i].String())); err != nil {
			return true, err
		}
	}
	return true, nil
}

// object tells of an object of the cache.
func (c *explainCommand) object(std *stdio, all *commands, key string) error {
	return c.with(std, all, stopTimeout, func(ctx context.Context, s *store.Store) error {
		return explainObject(ctx, std, s, key, c.Tenant, c.JSON)
	})
}

// explanation is everything that is known under an id.
type explanation struct {
	dir    string
	agents []string

	request  *ledger.Record
	transfer *agent.Record
	handOffs []handoff.Record
	prefixes []prefix.Record // what was found and kept in the shared cache
	partOf   string          // the request that a hand-off was part of
	err      error           // why there is nothing
	unread   error           // what could not be looked into
	silent   []peerquery.Unreachable
}

// recordDelay is more than a record takes from the end of its request to the
// disk.
const recordDelay = 500 * time.Millisecond

// of looks for everything under an id. The record of a request that has just
// ended may still be on its way, behind what engines kept of it and its hand-offs.
func (e *explanation) of(ctx context.Context, id kv.ID) *explanation {
	for until := time.Now().Add(recordDelay); ; {
		e.look(ctx, id)
		if e.request != nil || e.transfer != nil || e.partOf != "" || time.Now().After(until) || ctx.Err() != nil {
			return e
		}
		e.err = nil
		time.Sleep(recordDelay / 10)
	}
}

func (e *explanation) look(ctx context.Context, id kv.ID) {
	e.handOffs, e.prefixes = nil, nil
	var err error
	if e.request, err = ledger.FindIn(e.dir, id.String()); err != nil && !errors.Is(err, ledger.ErrNoRecord) {
		e.err = err
		return
	}
	if e.request != nil {
		e.prefix(ctx, e.request.ID)
		for _, text := range e.request.Transfers() {
			if transfer, err := kv.ParseID(text); err == nil {
				e.handOff(ctx, transfer)
				e.prefix(ctx, text)
			}
		}
		return
	}
	if e.transfer, e.err = e.findTransfer(ctx, id); e.transfer != nil {
		return
	}
	e.handOff(ctx, id)
	e.prefix(ctx, id.String())
	if len(e.handOffs) > 0 || len(e.prefixes) > 0 {
		e.err = nil
	}
	if of, err := ledger.OfTransferIn(e.dir, id.String()); err == nil {
		e.partOf = of.ID
	}
}

// findTransfer asks the agents that run, and then what those that are gone have
// written down.
func (e *explanation) findTransfer(ctx context.Context, id kv.ID) (*agent.Record, error) {
	var problem error
	for _, name := range e.agents {
		record, err := history.Get[agent.Record](ctx, history.AdminSocket(e.dir, name), "/transfers/"+id.String())
		if err == nil {
			return &record, nil
		}
		problem = errors.Join(problem, err)
	}
	written, err := history.TransferIn(e.dir, id)
	if written != nil {
		return written, nil
	}
	if problem = errors.Join(problem, err); problem == nil {
		problem = noAgent(e.dir)
	}
	return nil, problem
}

func noAgent(dir string) error {
	return &failure{err: fmt.Errorf("no agent runs with the state directory %s", dir), hint: "`meridian agent --name NAME` starts one", status: exitFailure}
}

// handOff asks every agent, each of which tells its own part, and reads what those
// that are gone have written down.
func (e *explanation) handOff(ctx context.Context, id kv.ID) {
	for _, name := range e.agents {
		if known, err := history.Get[[]handoff.Record](ctx, history.AdminSocket(e.dir, name), "/handoffs/"+id.String()); err == nil {
			e.handOffs = append(e.handOffs, known...)
		}
	}
	written, err := history.HandOffsIn(e.dir, id)
	if err != nil {
		e.unread = err
	}
	for _, w := range written {
		e.addHandOff(w)
	}
}

// addHandOff adds a side of a hand-off, unless it is known.
func (e *explanation) addHandOff(h handoff.Record) {
	isSame := func(r handoff.Record) bool { return r.Transfer == h.Transfer && r.As == h.As && r.Engine == h.Engine }
	if !slices.ContainsFunc(e.handOffs, isSame) {
		e.handOffs = append(e.handOffs, h)
	}
}

func (e *explanation) tell(std *stdio, asJSON bool) error {
	switch {
	case e.err != nil:
		return e.err
	case asJSON && e.transfer != nil:
		return std.writeJSON(e.transfer)
	case asJSON && e.request != nil:
		return std.writeJSON(map[string]any{"request": e.request, "handoffs": e.handOffs, "prefixes": e.prefixes})
	case asJSON:
		return std.writeJSON(map[string]any{"handoffs": e.handOffs, "prefixes": e.prefixes, "request_id": e.partOf})
	}
	var parts []fmt.Stringer
	if e.request != nil {
		parts = append(parts, e.request)
	}
	if e.transfer != nil {
		parts = append(parts, e.transfer)
	}
	for i := range e.prefixes {
		parts = append(parts, toldPrefix{&e.prefixes[i], e.handOffs})
	}
	for i := range e.handOffs {
		parts = append(parts, datedHandOff{&e.handOffs[i]})
	}
	for _, part := range parts {
		if _, err := io.WriteString(std.out, printable(part.String())); err != nil {
			return err
		}
	}
	if e.unread != nil {
		fmt.Fprintf(std.err, "some records could not be read: %s\n", printable(e.unread.Error()))
	}
	tellSilent(std, e.silent)
	if e.partOf != "" {
		_, err := fmt.Fprintf(std.out, "it was part of request %s; `meridian explain %s` tells of it\n", printable(e.partOf), printable(e.partOf))
		return err
	}
	return nil
}

func tellSilent(std *stdio, silent []peerquery.Unreachable) {
	for _, s := range silent {
		fmt.Fprintf(std.err, "%s was asked and did not answer: %s\n", oneLine(s.Name), oneLine(s.Why))
	}
}

// datedHandOff tells of a hand-off with its date.
type datedHandOff struct{ *handoff.Record }

func (h datedHandOff) String() string { return history.TellHandOff(h.Record) }

// listing is everything that is remembered.
type listing struct {
	requests  []*ledger.Record
	transfers []agent.Record
	handOffs  []handoff.Record
}

func (c *explainCommand) list(ctx context.Context, std *stdio, dir string, names []string) error {
	known := listing{transfers: []agent.Record{}, handOffs: []handoff.Record{}}
	var skipped int
	var err error
	most := latestListed
	if c.All {
		most = math.MaxInt32
	}
	if known.requests, skipped, err = ledger.LatestIn(dir, most); err != nil {
		return err
	}
	if skipped > 0 {
		fmt.Fprintf(std.err, "%d lines of %s are longer than a record and were passed over\n", skipped, ledger.FileName)
	}
	if len(names) == 0 && len(known.requests) == 0 {
		return noAgent(dir)
	}
	// Requests are what people ask for; where there are none, what moved.
	if len(known.requests) > 0 && !c.All {
		names = nil
	}
	silent := known.ask(ctx, dir, names)
	if len(silent) > 0 && len(silent) == len(names) && len(known.requests) == 0 {
		return errors.Join(silent...)
	}
	for _, err := range silent {
		fmt.Fprintf(std.err, "what it knows is left out: %v\n", err)
	}
	known.transfers, known.handOffs = last(known.transfers, most), last(known.handOffs, most)
	if c.JSON {
		return std.writeJSON(map[string]any{"requests": known.requests, "transfers": known.transfers, "handoffs": known.handOffs})
	}
	return known.table(std.out)
}

// agentWait is how long one agent may take to tell what it knows.
const agentWait = 5 * time.Second

// ask adds what agents know, and returns why some did not tell.
func (l *listing) ask(ctx context.Context, dir string, names []string) (silent []error) {
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, agentWait)
		transfers, err := history.Get[[]agent.Record](ctx, history.AdminSocket(dir, name), "/transfers")
		var given []handoff.Record
		if err == nil {
			given, err = history.Get[[]handoff.Record](ctx, history.AdminSocket(dir, name), "/handoffs")
		}
		cancel()
		if err != nil {
			silent = append(silent, err)
			continue
		}
		l.transfers, l.handOffs = append(l.transfers, transfers...), append(l.handOffs, given...)
	}
	return silent
}

// last is the end of a list, where agents have what came last.
func last[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

func (l *listing) table(out io.Writer) error {
	table := newTable(out, "")
	blank := ""
	section := func(rows int, header string) {
		if rows > 0 {
			fmt.Fprint(table, blank+header+"\n")
			blank = "\n"
		}
	}
	section(len(l.requests), "REQUEST\tBEGAN\tMODEL\tTOKENS\tMS\tOUTCOME")
	for _, r := range l.requests {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%.1f\t%s\n", r.ID, r.Began.Local().Format(time.TimeOnly), oneLine(r.Model), r.OutputTokens, r.Latency.TotalMs, oneLine(r.Outcome))
	}
	if len(l.requests) == 0 || len(l.transfers) > 0 {
		section(1, "TRANSFER\tOP\tPEER\tBYTES\tFABRIC\tSTATE")
	}
	for _, r := range l.transfers {
		fmt.Fprintf(table, "%s\t%v\t%s\t%d\t%s\t%v\n", r.ID, r.Op, oneLine(r.Peer), r.Bytes, oneLine(r.Fabric), r.State)
	}
	section(len(l.handOffs), "HAND-OFF\tAS\tPEER\tBYTES\tTOKENS\tPROBLEM")
	for _, r := range l.handOffs {
		fmt.Fprintf(table, "%s\t%v\t%s\t%d\t%d\t%s\n", r.Transfer, r.As, oneLine(r.Peer), r.Bytes, r.Tokens, oneLine(cmp.Or(r.Problem, "none")))
	}
	return table.Flush()
}
