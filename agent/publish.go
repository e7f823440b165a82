package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"meridian/fabric"
	"meridian/meta"
)

// publish puts the agent's record into the directory, under a lease that the
// directory's outage does not end.
func (a *Agent) publish(ctx context.Context) error {
	lease, err := a.options.Directory.Grant(ctx, meta.LeaseOptions{})
	if err != nil {
		return fmt.Errorf("agent: publish: %w", err)
	}
	a.lease = lease
	return a.Republish(ctx)
}

// Republish writes the record anew, after regions came or went. A name belongs
// to one living agent: while another holds it, this fails.
func (a *Agent) Republish(ctx context.Context) error {
	if a.lease == nil {
		return errors.New("agent: there is no directory to publish in")
	}
	value, err := a.record()
	if err != nil {
		return err
	}
	entry := meta.Entry{Key: AgentKey(a.options.Name), Value: value, Lease: a.lease}
	standing, err := a.options.Directory.Create(ctx, entry)
	if !errors.Is(err, meta.ErrExists) {
		return err
	}
	var r AgentRecord
	if json.Unmarshal(standing.Value, &r) != nil || r.Incarnation != a.incarnation.String() {
		return fmt.Errorf("agent: the name %q is held by incarnation %s; stop that agent, or wait until its lease ends", a.options.Name, r.Incarnation)
	}
	_, err = a.options.Directory.Swap(ctx, entry, standing.Revision)
	return err
}

// Find looks a peer up in the directory and fetches its metadata from it.
func (a *Agent) Find(ctx context.Context, name string) (*Peer, error) {
	if a.options.Directory == nil {
		return nil, errors.New("agent: there is no directory to look in; use Fetch or LoadMetadata")
	}
	record, err := a.options.Directory.Get(ctx, AgentKey(name))
	if err != nil {
		return nil, err
	}
	var r AgentRecord
	if err := json.Unmarshal(record.Value, &r); err != nil {
		return nil, fmt.Errorf("agent: the record of %s: %w", name, err)
	}
	for _, f := range a.fabrics {
		if address := r.Fabrics[f.Name()]; address != "" {
			if p, err := a.fetch(ctx, f, []byte(address)); !errors.Is(err, fabric.ErrUnsupported) {
				return p, err
			}
		}
	}
	return nil, fmt.Errorf("agent: %s has no address that its metadata can be fetched from", name)
}

// Fetch asks the agent at an address of a fabric for its metadata and loads it.
func (a *Agent) Fetch(ctx context.Context, fabricName, address string) (*Peer, error) {
	f := a.fabric(fabricName)
	if f == nil {
		return nil, fmt.Errorf("%w: this agent has no fabric %q", fabric.ErrUnsupported, fabricName)
	}
	return a.fetch(ctx, f, []byte(address))
}

func (a *Agent) fetch(ctx context.Context, f fabric.Fabric, address []byte) (*Peer, error) {
	fetcher, can := f.(fabric.Fetcher)
	if !can {
		return nil, fmt.Errorf("%w: %s cannot fetch metadata", fabric.ErrUnsupported, f.Name())
	}
	blob, err := fetcher.Fetch(ctx, address)
	if err != nil {
		return nil, err
	}
	return a.LoadMetadata(blob)
}
