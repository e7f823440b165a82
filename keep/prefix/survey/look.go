package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent/peerquery"
)

// Prompt is a prompt of which is asked what the cell keeps, for an engine.
type Prompt struct {
	Keeper        *Engine
	Salt, Adapter string
	Tokens        []uint32
}

// Look is what the cell keeps of a prompt.
type Look struct {
	Engine string `json:"engine"`
	Home   string `json:"home"`
	Model  string `json:"model"`
	Tenant string `json:"tenant"`
	// Tokens are the prompt's, UnitTokens those of a piece; Found are at hand, of Findable
	// that could be: whole pieces, and the last token is computed in any case.
	Tokens     int `json:"tokens"`
	UnitTokens int `json:"unit_tokens"`
	Findable   int `json:"findable_tokens"`
	Found      int `json:"found_tokens"`
	// Pieces are where they lie, in order.
	Pieces []Piece `json:"pieces"`
	// End is why it is not more, in one word, At who is the reason, Why a sentence.
	End string `json:"end"`
	At  string `json:"at,omitempty"`
	Why string `json:"why"`
	// Answer is what Find would say: fetch, compute, or miss.
	Answer    string  `json:"answer"`
	FetchUs   float64 `json:"fetch_us,omitempty"`
	ComputeUs float64 `json:"compute_us,omitempty"`
	// Silent are owners that did not answer.
	Silent []peerquery.Unreachable `json:"silent,omitempty"`

	chain  keys.Chain
	copies map[string][]store.Availability
}

// Piece is tokens Start to End of a prompt at one owner, in one tier. How old they are,
// and how large, is known of memory.
type Piece struct {
	Start         int    `json:"start"`
	End           int    `json:"end"`
	Owner         string `json:"owner"`
	Tier          string `json:"tier"`
	Units         int    `json:"units"`
	Bytes         uint64 `json:"bytes,omitempty"`
	OldestSeconds uint64 `json:"oldest_seconds,omitempty"`
	Pinned        int    `json:"pinned"`
}

// ErrOtherKey means that names of kept caches are made under another key here.
var ErrOtherKey = errors.New("node: this state directory has another key than the cell")

// LookFor says what a Find of a prompt would be told, without one: nothing is leased, and
// nothing counts as use.
func (s *Survey) LookFor(ctx context.Context, p Prompt) (*Look, error) {
	if s.Store == nil {
		return nil, errors.New("node: this agent has no part in the object cache")
	}
	facts, err := p.Keeper.facts()
	if err != nil {
		return nil, err
	}
	if s.Names.TenantOf("") != p.Keeper.NoSalt {
		return nil, ErrOtherKey
	}
	scope := kv.Scope{Model: p.Keeper.Model, Revision: p.Keeper.Revision, Adapter: p.Keeper.Adapter, Salt: p.Salt}
	if p.Adapter != "" {
		scope.Adapter = p.Adapter
	}
	chain := facts.ChainFor(s.Names, scope, p.Tokens[:max(0, len(p.Tokens)-1)]) // the last token is computed in any case
	looked := prefix.DryRun(ctx, s.Store, chain)
	look := &Look{
		Engine: p.Keeper.ID, Home: p.Keeper.Home, Model: p.Keeper.Model, Tenant: chain.Tenant, Tokens: len(p.Tokens), UnitTokens: facts.UnitTokens,
		Findable: len(chain.Keys) * facts.UnitTokens, Found: looked.Path.Units * facts.UnitTokens, End: string(looked.Path.End), At: looked.Path.At,
		Pieces: []Piece{}, chain: chain, copies: looked.Copies,
	}
	for _, piece := range looked.Path.Pieces {
		look.Pieces = append(look.Pieces, Piece{
			Start: piece.First * facts.UnitTokens, End: piece.End * facts.UnitTokens, Owner: piece.Owner, Tier: piece.Tier, Units: piece.End - piece.First,
			Bytes: piece.Bytes, OldestSeconds: piece.OldestSeconds, Pinned: piece.Pinned,
		})
	}
	for name, err := range looked.Silent {
		look.Silent = append(look.Silent, peerquery.Unreachable{Name: name, Why: err.Error()})
	}
	slices.SortFunc(look.Silent, func(a, b peerquery.Unreachable) int { return strings.Compare(a.Name, b.Name) })
	look.judge(&facts, looked.Path.End)
	return look, ctx.Err()
}

// judge says in words why the path ends, and what Find would answer.
func (l *Look) judge(facts *prefix.EngineFacts, end keys.End) {
	l.Why = map[keys.End]string{
		keys.EndWhole:   fmt.Sprintf("everything is there that can be: the %d tokens that follow are no whole piece of %d, or the last one, which is always computed", l.Tokens-l.Findable, l.UnitTokens),
		keys.EndShort:   fmt.Sprintf("the prompt is too short: nothing below %d tokens is kept, and its last token is always computed", l.UnitTokens+1),
		keys.EndUnknown: "no owner has the piece that begins there: it was never kept, was evicted or dropped, or was kept under another salt, adapter or revision, or for engines with another layout of their cache",
		keys.EndGone:    "its owner has let it go since the master heard of it",
		keys.EndSilent:  "its owner does not answer",
		keys.EndPieces:  fmt.Sprintf("what follows is at yet another owner, and a run comes from %d at most", keys.MaxSegments),
		keys.EndMaster:  "the master of the object cache does not say who has it",
	}[end]
	l.Answer = "miss"
	if l.Found == 0 {
		return
	}
	fetch, compute, worth := facts.Worth(l.Found)
	l.FetchUs, l.ComputeUs, l.Answer = micros(fetch), micros(compute), "fetch"
	if !worth {
		l.Answer = "compute"
	}
}

// Change is what was done at one owner.
type Change struct {
	Owner string `json:"owner"`
	Units int    `json:"units"`
	Bytes uint64 `json:"bytes,omitempty"`
	// Of pins: units that are not in memory, and that were beyond what may be pinned; bytes
	// that are pinned at this owner now, and may be.
	Missing     int    `json:"missing,omitempty"`
	Refused     int    `json:"refused,omitempty"`
	PinnedBytes uint64 `json:"pinned_bytes,omitempty"`
	PinnedMost  uint64 `json:"pinned_most,omitempty"`
	Problem     string `json:"problem,omitempty"`
}

// runs are what each owner has of the prompt from a piece on, where wanted says so.
func (l *Look) runs(first int, wanted func(store.Availability) bool) map[string]store.Run {
	all := make(map[string]store.Run)
	names := l.chain.Names()
	for owner, seen := range l.copies {
		run := store.Run{Tenant: l.chain.Tenant}
		for i := first; i < len(seen); i++ {
			if wanted(seen[i]) {
				run.Keys = append(run.Keys, names[i])
			}
		}
		if len(run.Keys) > 0 {
			all[owner] = run
		}
	}
	return all
}

// InMemory is what owners have of the prompt in memory, as it can be pinned.
func (l *Look) InMemory() map[string]store.Run {
	return l.runs(0, func(s store.Availability) bool { return s.Tier == store.Memory })
}

// From is what owners have of the prompt, wherever it lies, from the first whole piece on
// that begins at a token or after it.
func (l *Look) From(token int) map[string]store.Run {
	return l.runs(l.pieceFrom(token), func(s store.Availability) bool { return s.Tier != "" })
}

func (l *Look) pieceFrom(token int) int {
	return min((token+l.UnitTokens-1)/l.UnitTokens, len(l.chain.Keys))
}

// DropFrom takes what From tells of away from every owner, and copies of it.
func (s *Survey) DropFrom(ctx context.Context, l *Look, token int) (changes []Change) {
	run := store.Run{Tenant: l.chain.Tenant, Keys: l.chain.Names()[l.pieceFrom(token):]}
	runs := []store.Run{run}
	for number := 2; number <= keys.MaxCopies; number++ {
		runs = append(runs, run.Copy(number))
	}
	for _, o := range s.Store.Owners() {
		if c := s.Drop(ctx, o.Name, runs); c.Units > 0 || c.Problem != "" {
			changes = append(changes, c)
		}
	}
	return changes
}

// ByKeys are runs of objects that were listed, by owner; each tenant's apart.
func ByKeys(objects []store.Object) map[string][]store.Run {
	all := make(map[string][]store.Run)
	at := make(map[[2]string]int)
	for _, o := range objects {
		key := [2]string{o.Owner, o.Tenant}
		i, is := at[key]
		if !is {
			i = len(all[o.Owner])
			at[key] = i
			all[o.Owner] = append(all[o.Owner], store.Run{Tenant: o.Tenant})
		}
		all[o.Owner][i].Keys = append(all[o.Owner][i].Keys, o.Key)
	}
	return all
}

// Pin pins runs at one owner, or lets them be again.
func (s *Survey) Pin(ctx context.Context, owner string, runs []store.Run, pinned bool) Change {
	c := Change{Owner: owner}
	for _, run := range runs {
		pins, err := s.Store.SetPinned(ctx, owner, run, pinned)
		c.Units, c.Missing, c.Refused = c.Units+int(pins.Done), c.Missing+int(pins.Missing), c.Refused+int(pins.Refused)
		c.PinnedBytes, c.PinnedMost = pins.Bytes, pins.Most
		if err != nil {
			c.Problem = err.Error()
			break
		}
	}
	return c
}

// Drop takes runs away from one owner, from memory and from its tiers.
func (s *Survey) Drop(ctx context.Context, owner string, runs []store.Run) Change {
	c := Change{Owner: owner}
	for _, run := range runs {
		dropped, err := s.Store.Discard(ctx, owner, run)
		c.Units += dropped
		if err != nil {
			c.Problem = err.Error()
			break
		}
	}
	return c
}
