package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
	"meridian/kv"
)

// ListOptions say which objects are meant.
type ListOptions struct {
	// Owner names whose; default all.
	Owner string
	// Prefix is that of their keys.
	Prefix string
	// Tenant is whose keys they are; default the store's. AllTenants means every one.
	Tenant     string
	AllTenants bool
	// Most bounds how many are listed; default 10000.
	Most int
}

// Object is one that can be found.
type Object struct {
	Owner, Tenant, Key string
	Bytes, Checksum    uint64
	AgeSeconds         uint64 // since it was last asked for
	Readers            uint16
	Priority           uint8
	Pinned             bool
}

// List lists objects, owner by owner, in no order that means anything. What comes and
// goes meanwhile may be in it or not.
func (s *Store) List(ctx context.Context, o ListOptions) ([]Object, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	o.Most = cmp.Or(o.Most, 10000)
	owners := s.Owners()
	if o.Owner != "" {
		one, err := s.owner(o.Owner)
		if err != nil {
			return nil, err
		}
		owners = []OwnerRecord{one}
	}
	var all []Object
	for _, at := range owners {
		err := s.listOne(ctx, at.peer(), o, func(x owner.Object) bool {
			tenant, key, err := protocol.SplitName(x.Name)
			if err == nil {
				all = append(all, Object{
					at.Name, tenant, key, x.Bytes, x.Checksum, x.AgeSeconds, x.Readers, x.Priority, x.Pinned,
				})
			}
			return len(all) < o.Most
		})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// listTogether is how many objects one answer lists: with the longest keys it is
// still small.
const listTogether = 512

func (s *Store) listOne(ctx context.Context, at kv.Member, o ListOptions, yield func(owner.Object) bool) error {
	m := &protocol.List{Tenant: cmp.Or(o.Tenant, s.options.Tenant), AllTenants: o.AllTenants, Prefix: o.Prefix, Most: listTogether}
	for {
		answer, err := s.askPatiently(ctx, at, m)
		if err != nil {
			return err
		}
		listing, is := answer.(*protocol.Listing)
		if !is || listing.Next != 0 && listing.Next <= m.After {
			return unexpected(at, answer)
		}
		for _, x := range listing.Objects {
			if !yield(x) {
				return nil
			}
		}
		if m.After = listing.Next; m.After == 0 {
			return nil
		}
	}
}

// askPatiently asks an owner again while it waits for the master.
func (s *Store) askPatiently(ctx context.Context, to kv.Member, m protocol.Message) (protocol.Message, error) {
	for {
		answer, err := s.askPeer(ctx, to, m)
		if !protocol.Passes(err) || !s.pause(ctx, tickPause) {
			return answer, err
		}
	}
}

// OwnerStats is how an owner stands, or why it did not say.
type OwnerStats struct {
	OwnerRecord
	owner.Stats
	// Answers reports whether it has a lease, of the master of Term.
	Answers bool
	Term    uint64
	Master  string
	// Cold is how its tiers stand; none, if it did not say.
	Cold []protocol.Tier
	Err  error
}

// Stats is how the cache stands.
type Stats struct {
	Owners []OwnerStats
	// Client is what this one has done.
	Client Metrics
}

// Stats asks every owner how it stands.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Stats{}, err
	}
	defer leave()
	owners := s.Owners()
	all := Stats{Owners: make([]OwnerStats, len(owners)), Client: s.Metrics()}
	each(len(owners), func(i int) { all.Owners[i] = s.describe(ctx, owners[i]) })
	return all, nil
}

func (s *Store) describe(ctx context.Context, o OwnerRecord) OwnerStats {
	stats := OwnerStats{OwnerRecord: o}
	answer, err := s.askPeer(ctx, o.peer(), &protocol.Describe{})
	said, is := answer.(*protocol.Description)
	switch {
	case err != nil:
		stats.Err = err
	case !is:
		stats.Err = unexpected(o.peer(), answer)
	default:
		stats.Stats, stats.Answers, stats.Term, stats.Master = said.Stats, said.Answers, said.Term, said.Master
	}
	if stats.Err == nil && o.Tiers {
		answer, _ := s.askPeer(ctx, o.peer(), &protocol.DescribeTiers{})
		if tiers, is := answer.(*protocol.Tiers); is {
			stats.Cold = tiers.Tiers
		}
	}
	return stats
}

// EvictUntilBelow lets an owner's objects go until no more than a part of its heap
// is used, and reports how many left.
func (s *Store) EvictUntilBelow(ctx context.Context, name string, used float64) (uint64, error) {
	if !(used >= 0 && used <= 1) {
		return 0, fmt.Errorf("store: evict until %v of the heap is used: a part is between 0 and 1", used)
	}
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	o, err := s.owner(name)
	if err != nil {
		return 0, err
	}
	answer, err := s.askPatiently(ctx, o.peer(), &protocol.Evict{Permille: uint64(math.Round(1000 * used))})
	if err != nil {
		return 0, err
	}
	evicted, is := answer.(*protocol.Evicted)
	if !is {
		return 0, unexpected(o.peer(), answer)
	}
	return evicted.Objects, nil
}

// Scrubbed is what a Scrub found.
type Scrubbed struct {
	Objects, Bytes uint64 // that are whole
	Torn           uint64 // that were not, and are gone
	Gone           uint64 // that left meanwhile
}

// Scrub reads every object of an owner, of all tenants, and checks its sums. What is
// broken is dropped. It tells after each object how many bytes of all it has gone
// through. The context bounds the whole of it; without a deadline each object has the
// store's timeout.
func (s *Store) Scrub(ctx context.Context, name string, tell func(done, all uint64)) (Scrubbed, error) {
	var found Scrubbed
	var done, all uint64
	objects, err := s.List(ctx, ListOptions{Owner: name, AllTenants: true, Most: math.MaxInt})
	if err != nil {
		return found, err
	}
	for _, o := range objects {
		all += o.Bytes
	}
	for _, o := range objects {
		err := s.scrubOne(ctx, name, o)
		done += o.Bytes
		tell(done, all)
		switch {
		case err == nil:
			found.Objects++
			found.Bytes += o.Bytes
		case errors.Is(err, ErrTorn):
			found.Torn++
		case errors.Is(err, ErrMissing) || errors.Is(err, ErrTooSmall):
			found.Gone++
		default:
			return found, err
		}
	}
	return found, nil
}

// scrubOne reads an object from one owner and no other.
func (s *Store) scrubOne(ctx context.Context, name string, o Object) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	object, err := protocol.ObjectName(o.Tenant, o.Key)
	if err != nil {
		return err
	}
	at, err := s.owner(name)
	if err != nil {
		return err
	}
	if o.Bytes > maxGetBytes {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, o.Bytes)
	}
	left := uint64(duration(s.deadline(ctx) - s.now()).Milliseconds())
	_, answer, err := s.getFrom(ctx, at.peer(), &protocol.Get{Name: object, PatienceMs: max(1, left)}, &reader{into: make([]byte, o.Bytes)})
	if err != nil {
		return err
	}
	if r, is := answer.(*protocol.Reply); is {
		return r.Problem.Err()
	}
	return nil
}
