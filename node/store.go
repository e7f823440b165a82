package node

import (
	"context"
	"errors"

	"meridian/store"
)

// Store says which part a process has in the object cache.
type Store struct {
	// Owner is what it keeps; nil keeps nothing.
	Owner *store.OwnerOptions
	// Candidate says that it may become the master.
	Candidate bool
	// DirectMap says that processes of the agent's own user may map what it keeps.
	DirectMap bool
	// Tenant is whose keys are meant where a call names no other.
	Tenant string
	// Prefixes is how engines keep and find what they computed.
	Prefixes Prefixes
}

// ErrNoDirectory means that an object cache was asked for without a directory.
var ErrNoDirectory = errors.New("node: an object cache needs a directory: its owners and its master are found there")

// offeredExtents is how many extents of each size an owner sets aside for producers
// that map its arena: what they use up between two of its scans, a second apart.
const offeredExtents = 16

// openStore opens the part of the object cache that the process has.
func (n *Agent) openStore(ctx context.Context, o AgentOptions) (err error) {
	if o.Store == nil {
		return nil
	}
	if n.Directory == nil {
		return ErrNoDirectory
	}
	owner := o.Store.Owner
	if owner != nil && o.Store.DirectMap && owner.Offers == 0 {
		offering := *owner
		offering.Offers = offeredExtents
		owner = &offering
	}
	n.Store, err = store.Open(ctx, store.Options{
		Agent: n.Agent, Directory: n.Directory, Owner: owner, Candidate: o.Store.Candidate, Tenant: o.Store.Tenant, Logger: o.Logger,
	})
	return err
}
