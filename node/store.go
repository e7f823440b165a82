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
}

// ErrNoDirectory means that an object cache was asked for without a directory.
var ErrNoDirectory = errors.New("node: an object cache needs a directory: its owners and its master are found there")

// openStore opens the part of the object cache that the process has.
func (n *Agent) openStore(ctx context.Context, o AgentOptions) (err error) {
	if o.Store == nil {
		return nil
	}
	if n.Directory == nil {
		return ErrNoDirectory
	}
	n.Store, err = store.Open(ctx, store.Options{
		Agent: n.Agent, Directory: n.Directory, Owner: o.Store.Owner, Candidate: o.Store.Candidate, Tenant: o.Store.Tenant, Logger: o.Logger,
	})
	return err
}
