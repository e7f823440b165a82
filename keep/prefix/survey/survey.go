// Package survey tells operators what a cell keeps of prompts: which engines keep and find,
// what came of that by model and tenant, which pieces lie where, and what a Find would be
// told. It has pieces pinned and dropped.
//
//	Engine, Uses ─► questions ═══ links ═══► Answer, at each agent ─► its engines, its owner
//	LookFor, Pin, Drop ─► the store ═════════════════════════════► owners
//
// Nothing here counts as use of what is looked at.
package survey

import (
	"context"
	"fmt"

	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/agent/peerquery"
)

// KeptKeys begin the keys of all pieces of prefixes.
const KeptKeys = keys.KeyPrefix

// Options says what an agent has of the shared cache.
type Options struct {
	// Agent is its name.
	Agent string
	// Store is its part in the object cache, Cache what its engines keep and find; nil: none.
	Store *store.Store
	Cache *prefix.Cache
	// Directory lists engines.
	Directory directory.Directory
	// Names is the key of the cell by which pieces are named.
	Names keys.NamesKey
	// Scope is what an engine of this agent computes for, if it serves; nil where none comes.
	Scope func(engine string) (kv.Scope, bool)
}

// Survey tells of the cache as one agent sees it. Its methods may be called from several
// goroutines.
type Survey struct {
	Options
	uses usesCache
}

// New is a survey; it holds nothing that would have to be closed.
func New(o Options) *Survey { return &Survey{Options: o} }

// Answer tells another agent of this one's engines, of what came of their Finds and Keeps, or
// of what its owner keeps.
func (s *Survey) Answer(ctx context.Context, q peerquery.Question) (peerquery.Answer, error) {
	switch q.Kind {
	case peerquery.Keepers:
		return peerquery.Found(q, s.engines()), nil
	case peerquery.Uses:
		records, err := s.ownUses(ctx)
		return peerquery.Found(q, records), err
	case peerquery.Objects:
		records, err := s.objects(ctx, q.Beginning)
		return peerquery.Found(q, records), err
	}
	return peerquery.Answer{}, fmt.Errorf("nothing of kind %d", q.Kind)
}

// eachKept goes through the objects that this agent's owner has in memory under keys that
// begin so, until take has enough of them.
func (s *Survey) eachKept(ctx context.Context, beginning string, take func(*store.Object) (more bool)) error {
	if s.Store == nil {
		return nil
	}
	if _, keeps := s.Store.Kept(); !keeps {
		return nil
	}
	for from := (store.ListPlace{Owner: s.Agent}); from.Owner == s.Agent; { // another is next where the directory does not list this one
		objects, next, err := s.Store.ListPage(ctx, store.ListOptions{AllTenants: true, Prefix: beginning, Most: 512}, from)
		if err != nil {
			return err
		}
		for i := range objects {
			if objects[i].Owner == s.Agent && !take(&objects[i]) {
				return nil
			}
		}
		from = next
	}
	return nil
}
