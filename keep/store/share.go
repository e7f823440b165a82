package store

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"meridian/keep/store/arena"
	"meridian/keep/store/protocol"
)

// Shared is the arena of the owner in this process, for others on the host that map it.
type Shared struct {
	File  *os.File // to read and to write; the caller closes it
	Rank  int
	Bytes uint64
}

// Share returns the arena: ErrRefused where nothing is kept here. Who has it can
// write to every object, and is believed in nothing.
func (s *Store) Share() (Shared, error) {
	if s.owned == nil {
		return Shared{}, fmt.Errorf("%w: no objects are kept here", ErrRefused)
	}
	if err := s.owned.memory.Acquire(); err != nil {
		return Shared{}, ErrClosed
	}
	defer s.owned.memory.Release()
	file, err := s.owned.memory.Share()
	return Shared{File: file, Rank: s.owned.rank, Bytes: s.owned.memory.Size()}, err
}

// ListPlace is where a listing goes on; the zero value is its beginning, or its end.
type ListPlace struct {
	Owner string
	At    uint64
}

// ListPage lists some objects of one owner, and says where to go on. What comes and goes
// meanwhile may be in it or not.
func (s *Store) ListPage(ctx context.Context, o ListOptions, from ListPlace) (objects []Object, next ListPlace, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, next, err
	}
	defer leave()
	owners := s.Owners()
	i, there := slices.BinarySearchFunc(owners, from.Owner, func(r OwnerRecord, name string) int { return strings.Compare(r.Name, name) })
	switch {
	case i == len(owners):
		return nil, ListPlace{}, nil // those that were to come have gone
	case !there:
		from.At = 0
	}
	at := owners[i]
	answer, err := s.askPatiently(ctx, at.peer(), &protocol.List{
		Tenant: cmp.Or(o.Tenant, s.options.Tenant), AllTenants: o.AllTenants, Prefix: o.Prefix, After: from.At, Most: uint64(min(max(o.Most, 1), listTogether)),
	})
	if err != nil {
		return nil, next, err
	}
	listing, is := answer.(*protocol.Listing)
	if !is || listing.Next != 0 && listing.Next <= from.At {
		return nil, next, unexpected(at.peer(), answer)
	}
	for _, x := range listing.Objects {
		if tenant, key, err := protocol.SplitName(x.Name); err == nil {
			objects = append(objects, Object{at.Name, tenant, key, x.Bytes, x.Checksum, x.AgeSeconds, x.Readers, x.Priority, x.Pinned})
		}
	}
	switch {
	case listing.Next != 0:
		next = ListPlace{at.Name, listing.Next}
	case i+1 < len(owners):
		next = ListPlace{Owner: owners[i+1].Name}
	}
	return objects, next, nil
}

// Name is a key of a tenant as it stands in arenas.
func (s *Store) Name(tenant, key string) ([]byte, error) { return s.nameOf(tenant, key) }

// HeaderOffset is where a header lies in its arena.
func HeaderOffset(header uint32) uint64 { return arena.Segment + arena.HeaderSize*uint64(header) }
