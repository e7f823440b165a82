package store

import (
	"context"

	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
)

// Status is how the object cache of a cell stands, as one of its agents sees it.
type Status struct {
	Master string        `json:"master"`
	Term   uint64        `json:"term"`
	Owners []OwnerStatus `json:"owners"`
}

// OwnerStatus is how an owner stands, for operators.
type OwnerStatus struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Rank        int    `json:"rank"`
	Answers     bool   `json:"answers"`
	Term        uint64 `json:"term"`
	owner.Stats
	// Tiers are what it has below its memory, the nearest first.
	Tiers   []protocol.Tier `json:"tiers,omitempty"`
	Problem string          `json:"problem,omitempty"`
}

// Serves reports whether the owner was reached and answers clients.
func (o OwnerStatus) Serves() bool { return o.Problem == "" && o.Answers }

// Serving is how many owners serve.
func (c *Status) Serving() (n int) {
	for _, o := range c.Owners {
		if o.Serves() {
			n++
		}
	}
	return n
}

// Status asks every owner how it stands.
func (s *Store) Status(ctx context.Context) (*Status, error) {
	stats, err := s.Stats(ctx)
	if err != nil {
		return nil, err
	}
	all := &Status{Owners: make([]OwnerStatus, len(stats.Owners))}
	all.Master, all.Term = s.Master()
	for i, o := range stats.Owners {
		all.Owners[i] = OwnerStatus{Name: o.Name, Incarnation: o.Incarnation.String(), Rank: o.Rank, Answers: o.Answers, Term: o.Term, Stats: o.Stats, Tiers: o.Cold}
		if o.Err != nil {
			all.Owners[i].Problem = o.Err.Error()
		}
	}
	return all, nil
}
