package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// GrantOptions says what a grant opens, to whom, for what and for how long.
type GrantOptions struct {
	// Peer is the name of the one agent that may use it; Incarnation, where
	// given, the one start of it.
	Peer        string
	Incarnation kv.ID
	// Op is what the peer may do: read this memory, or write it.
	Op fabric.Op
	// Side is the memory, of a list that Local or LocalSpans made.
	Side Side
	// For is how long the grant holds.
	For time.Duration
	// Sums, where given, are those of memory that it opens to be written, taken as
	// it is placed.
	Sums *fabric.Sums
}

// Grant opens memory of this agent to one peer. Without a grant no peer may
// read or write anything here. The id is a secret between this agent and that
// peer, who names it in PostOptions; it may be used any number of times until
// it expires, is revoked, or a region it opens is fenced.
func (a *Agent) Grant(o GrantOptions) (kv.ID, error) {
	switch {
	case o.Peer == "":
		return kv.ID{}, errors.New("agent: a grant is for one peer: name it")
	case o.Op != fabric.Read && o.Op != fabric.Write:
		return kv.ID{}, fmt.Errorf("agent: a grant is for reading or for writing, not for operation %d", o.Op)
	case o.For <= 0:
		return kv.ID{}, fmt.Errorf("agent: a grant for %v would never hold", o.For)
	case o.Side.List == nil || o.Side.List.agent != a || o.Side.List.peer != nil:
		return kv.ID{}, errors.New("agent: a grant opens this agent's own memory: use a list of Local's or LocalSpans'")
	}
	list, err := o.Side.List.pick(o.Side.Indices)
	if err != nil {
		return kv.ID{}, err
	}
	row := &grant{peer: o.Peer, incarnation: o.Incarnation, op: o.Op, until: a.options.Clock.Now().Add(o.For), runs: runsByRegion(list), sums: o.Sums}
	id, err := a.grants.issue(a.newID(), row, a.options.Clock.Now())
	if err == nil {
		a.audit.note(slog.LevelDebug, "granted", "grant", short(id), "peer", o.Peer, "op", o.Op.String(), "bytes", list.Bytes(), "for", o.For)
	}
	return id, err
}

// Revoke takes a grant back: when it returns nil, nothing that runs under it
// touches memory here. Revoking what has ended is no error, and what failed may
// be tried again.
func (a *Agent) Revoke(ctx context.Context, id kv.ID) error {
	if a.grants.end(id, fabric.ErrGrantRevoked) {
		a.audit.note(slog.LevelDebug, "revoked", "grant", short(id))
	}
	var errs []error
	for _, f := range a.fabrics {
		if r, serves := f.(fabric.Revoker); serves {
			errs = append(errs, r.Revoke(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// short is enough of an id to follow it in a log, and too little to use it.
func short(id kv.ID) string { return id.String()[:8] }

// grant is one row of the table.
type grant struct {
	peer        string
	incarnation kv.ID
	op          fabric.Op
	until       time.Time
	runs        []grantedRuns
	sums        *fabric.Sums
}

// grants is the table. A row is never changed once it is in.
type grants struct {
	mu    sync.RWMutex // protects the rest
	rows  map[kv.ID]*grant
	ended endings
	limit int
}

func newGrants(limit int) *grants {
	return &grants{rows: make(map[kv.ID]*grant), ended: endings{ring: make([]kv.ID, 4096), why: make(map[kv.ID]error)}, limit: limit}
}

// issue enters a row under a random id. A full table first forgets what has
// expired.
func (g *grants) issue(id kv.ID, row *grant, now time.Time) (kv.ID, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.rows) >= g.limit {
		for old, r := range g.rows {
			if now.After(r.until) {
				g.endLocked(old, fabric.ErrGrantExpired)
			}
		}
	}
	if len(g.rows) >= g.limit {
		return kv.ID{}, fmt.Errorf("%w: %d grants hold already", fabric.ErrBusy, g.limit)
	}
	g.rows[id] = row
	return id, nil
}

// end strikes a row out and remembers why for a while.
func (g *grants) end(id kv.ID, why error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.endLocked(id, why)
}

func (g *grants) endLocked(id kv.ID, why error) bool {
	if _, held := g.rows[id]; !held {
		return false
	}
	delete(g.rows, id)
	g.ended.put(id, why)
	return true
}

func (g *grants) len() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.rows)
}

// sumsOf is what a grant wants to be summed.
func (g *grants) sumsOf(id kv.ID) *fabric.Sums {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if row := g.rows[id]; row != nil {
		return row.sums
	}
	return nil
}

// admit decides about a request. Each refusal has its own error; who guesses
// learns only that there is no such grant.
func (g *grants) admit(a fabric.Access, now time.Time) error {
	if len(a.List) == 0 {
		return nil // a notification, no memory
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	row, held := g.rows[a.Grant]
	switch {
	case !held:
		if why := g.ended.why[a.Grant]; why != nil {
			return why
		}
		return fmt.Errorf("%w: ask the owner of the memory for one", fabric.ErrNoGrant)
	case row.peer != a.Peer:
		return fmt.Errorf("%w: not %s's", fabric.ErrGrantPeer, a.Peer)
	case row.incarnation != (kv.ID{}) && row.incarnation != a.Incarnation:
		return fmt.Errorf("%w: of another incarnation of %s", fabric.ErrGrantPeer, a.Peer)
	case row.op != a.Op:
		return fmt.Errorf("%w: to %v, not to %v", fabric.ErrGrantOp, row.op, a.Op)
	case now.After(row.until):
		return fmt.Errorf("%w: %v ago", fabric.ErrGrantExpired, now.Sub(row.until).Round(time.Millisecond))
	}
	for i := range a.List {
		if i > 0 && a.List[i].Region == a.List[i-1].Region && a.List[i].Epoch == a.List[i-1].Epoch && a.List[i].Spans.Same(&a.List[i-1].Spans) {
			continue
		}
		if err := row.covers(&a.List[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *grant) covers(part *fabric.Part) error {
	stale := false
	for i := range r.runs {
		o := &r.runs[i]
		if o.region != part.Region {
			continue
		}
		if o.epoch == part.Epoch {
			return o.covers(&part.Spans)
		}
		stale = true
	}
	if stale {
		return fmt.Errorf("%w: region %d was granted at another epoch than %d", fabric.ErrStaleEpoch, part.Region, part.Epoch)
	}
	return fmt.Errorf("%w: it does not open region %d", fabric.ErrGrantSpans, part.Region)
}

// endings remembers how the last grants ended.
type endings struct {
	ring []kv.ID
	next int
	why  map[kv.ID]error
}

func (e *endings) put(id kv.ID, why error) {
	delete(e.why, e.ring[e.next])
	e.ring[e.next], e.why[id] = id, why
	e.next = (e.next + 1) % len(e.ring)
}
