package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"meridian/keep/store/arena"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/member/directory"
)

// Where the records of the object cache stand.
const (
	ownersPrefix = "store/owners/"
	rosterPrefix = "store/roster/"
	awayPrefix   = "store/away/"
	ranksKey     = "store/ranks"
	masterKey    = "store/master"
)

// OwnerRecord is what the directory holds of an owner.
type OwnerRecord struct {
	Name        string `json:"name"`
	Incarnation kv.ID  `json:"incarnation"`
	// Rank is the number of the name, Bytes the size of the arena.
	Rank  int    `json:"rank"`
	Bytes uint64 `json:"bytes"`
	// Tiers says that it keeps objects outside of memory, too.
	Tiers bool `json:"tiers,omitempty"`
	// Prefixes is the last kind of message about prefixes that its agent reads; 0: of an
	// older build, or none. Who asks of a later kind would wait for nothing.
	Prefixes int `json:"prefixes,omitempty"`
}

const (
	maxName   = 255
	maxOwners = 4096
	maxRecord = 4 << 10
)

// parseOwner reads a record under a prefix as a process that can write to the directory
// left it.
func parseOwner(r directory.Record, prefix string) (OwnerRecord, error) {
	var o OwnerRecord
	if len(r.Value) > maxRecord {
		return o, fmt.Errorf("store: the record at %.80q has %d bytes, at most %d", r.Key, len(r.Value), maxRecord)
	}
	if err := json.Unmarshal(r.Value, &o); err != nil {
		return o, fmt.Errorf("store: the record at %.80q cannot be read: %.200w", r.Key, err)
	}
	if o.Name == "" || len(o.Name) > maxName || prefix+o.Name != r.Key || o.Rank < 0 || o.Rank > maxRanks || o.Incarnation == (kv.ID{}) {
		return o, fmt.Errorf("store: the record at %.80q is of owner %.80q, number %d", r.Key, o.Name, o.Rank)
	}
	return o, nil
}

// parseOwners reads all that can be read, in the order of names.
func (s *Store) parseOwners(records []directory.Record, prefix string) (owners []OwnerRecord) {
	for _, r := range records {
		o, err := parseOwner(r, prefix)
		if err == nil && len(owners) == maxOwners {
			err = fmt.Errorf("store: more than %d owners; %.80q is left out", maxOwners, o.Name)
		}
		if err != nil {
			s.options.Logger.Warn("an owner is not used", "error", err)
			continue
		}
		owners = append(owners, o)
	}
	return owners
}

// view is what is known of owners.
type view struct {
	watch *directory.Watch

	mu      sync.Mutex // protects the rest
	known   bool       // the directory has answered
	owners  []OwnerRecord
	changed chan struct{} // closed by the next change
}

// openView follows the owners, and waits until it knows them.
func openView(ctx context.Context, s *Store) (*view, error) {
	watch, err := s.options.Directory.Watch(s.ctx, ownersPrefix, 0)
	if err != nil {
		return nil, err
	}
	v := &view{watch: watch, changed: make(chan struct{})}
	s.wait.Go(func() { v.follow(s) })
	if err := v.await(ctx, func() bool { return v.known }); err != nil {
		watch.Close()
		return nil, err
	}
	return v, nil
}

// await waits until something holds, which needs mu.
func (v *view) await(ctx context.Context, holds func() bool) error {
	for {
		v.mu.Lock()
		done, changed := holds(), v.changed
		v.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("store: the directory has not said who owns what: %w", ctx.Err())
		}
	}
}

func (v *view) follow(s *Store) {
	defer v.watch.Close()
	var heard directory.View
	for e := range v.watch.Events() {
		if changed, gone := heard.Apply(e); len(changed)+len(gone) > 0 || heard.Known() {
			s.goneOwners(v.replace(s.parseOwners(heard.Records(), ownersPrefix), heard.Known()))
		}
	}
}

// replace takes a new list, and returns which owners of the old are not in it.
func (v *view) replace(owners []OwnerRecord, known bool) (gone []kv.Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = v.known || known
	close(v.changed)
	v.changed = make(chan struct{})
	for _, was := range v.owners {
		if !slices.ContainsFunc(owners, func(o OwnerRecord) bool { return o.peer() == was.peer() }) {
			gone = append(gone, was.peer())
		}
	}
	v.owners = owners
	return gone
}

func (v *view) knows(p kv.Member) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.has(p)
}

// has needs mu.
func (v *view) has(p kv.Member) bool {
	return slices.ContainsFunc(v.owners, func(o OwnerRecord) bool { return o.peer() == p })
}

func (s *Store) goneOwners(gone []kv.Member) {
	for _, p := range gone {
		s.gone(p)
	}
}

func (o OwnerRecord) peer() kv.Member {
	return kv.Member{Name: o.Name, Incarnation: o.Incarnation}
}

// Owners are those that the directory names, by name.
func (s *Store) Owners() []OwnerRecord {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	return slices.Clone(s.view.owners)
}

// ownersOf are the owners by where a key belongs, a preferred one first.
func (s *Store) ownersOf(name []byte, preferred string) []kv.Member {
	owners := s.Owners()
	peers := make([]kv.Member, len(owners))
	for i, o := range owners {
		peers[i] = o.peer()
	}
	if len(peers) > 1 {
		peers = protocol.Rendezvous(arena.HashKey(name), peers)
	}
	if at := slices.IndexFunc(peers, func(p kv.Member) bool { return p.Name == preferred }); at > 0 {
		first := peers[at]
		peers = slices.Insert(slices.Delete(peers, at, at+1), 0, first)
	}
	return peers
}

// owner is one of them by its name.
func (s *Store) owner(name string) (OwnerRecord, error) {
	owners := s.Owners()
	for _, o := range owners {
		if o.Name == name {
			return o, nil
		}
	}
	names := make([]string, 0, 8)
	for _, o := range owners[:min(8, len(owners))] {
		names = append(names, o.Name)
	}
	return OwnerRecord{}, fmt.Errorf("%w: no owner %.80q; there are %d: %s", ErrUnavailable, name, len(owners), strings.Join(names, ", "))
}
