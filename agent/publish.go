package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"meridian/fabric"
	"meridian/meta"
)

// AgentRecord is what the directory holds of an agent.
type AgentRecord struct {
	Name        string            `json:"name"`
	Incarnation string            `json:"incarnation"`
	Fabrics     map[string]string `json:"fabrics"`
	// Regions is a digest of the region table: it changes when the table does.
	Regions string `json:"regions"`
	// Lock is Options.Lock.
	Lock string `json:"lock,omitempty"`
}

// AgentKey is where an agent's record stands.
func AgentKey(name string) string { return AgentPrefix + name }

// AgentPrefix is where all agents' records stand.
const AgentPrefix = "agents/"

func (a *Agent) record() ([]byte, error) {
	r := AgentRecord{Name: a.options.Name, Incarnation: a.incarnation.String(), Fabrics: make(map[string]string), Lock: a.options.Lock}
	for _, f := range a.reaches() {
		r.Fabrics[f.fabric] = string(f.address)
	}
	blob := metadata{name: r.Name, regions: a.Regions()}.append(nil)
	r.Regions = fmt.Sprintf("%x", blob[len(blob)-8:])
	return json.Marshal(r)
}

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
// to one living agent: while another holds it, this fails, unless that one had
// the lock that this one has, and has died.
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
	readable := json.Unmarshal(standing.Value, &r) == nil
	ours := readable && r.Incarnation == a.incarnation.String()
	dead := readable && a.options.Lock != "" && r.Lock == a.options.Lock
	if !ours && !dead {
		return fmt.Errorf("agent: the name %q is held by incarnation %s; stop that agent, or wait until its lease ends", a.options.Name, fabric.Told(r.Incarnation))
	}
	_, err = a.options.Directory.Swap(ctx, entry, standing.Revision)
	return err
}

// Find looks a peer up in the directory and fetches its metadata from it.
// Whoever else answers at its address is refused.
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
	var errs []error
	for _, f := range a.fabrics {
		address := r.Fabrics[f.Name()]
		if address == "" {
			continue
		}
		if len(address) > maxAddress {
			errs = append(errs, fmt.Errorf("%s: the directory has an address of %d bytes, at most %d", f.Name(), len(address), maxAddress))
			continue
		}
		m, err := a.fetch(ctx, f, []byte(address))
		if err == nil && (m.name != name || m.incarnation.String() != r.Incarnation) {
			err = fmt.Errorf("%w: at %s the directory has %s of incarnation %s, and %s of %s answered",
				fabric.ErrStalePeer, fabric.Told(address), name, fabric.Told(r.Incarnation), m.name, m.incarnation)
		}
		if err == nil {
			return a.load(m)
		}
		errs = append(errs, fmt.Errorf("%s: %w", f.Name(), err))
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("agent: %s has no address that its metadata can be fetched from", name)
	}
	return nil, errors.Join(errs...)
}

// Fetch asks the agent at an address of a fabric for its metadata and loads it.
func (a *Agent) Fetch(ctx context.Context, fabricName, address string) (*Peer, error) {
	f := a.fabric(fabricName)
	if f == nil {
		return nil, fmt.Errorf("%w: this agent has no fabric %q", fabric.ErrUnsupported, fabricName)
	}
	m, err := a.fetch(ctx, f, []byte(address))
	if err != nil {
		return nil, err
	}
	return a.load(m)
}

func (a *Agent) fetch(ctx context.Context, f fabric.Fabric, address []byte) (metadata, error) {
	fetcher, can := f.(fabric.Fetcher)
	if !can {
		return metadata{}, fmt.Errorf("%w: %s cannot fetch metadata", fabric.ErrUnsupported, f.Name())
	}
	blob, err := fetcher.Fetch(ctx, address)
	if err != nil {
		return metadata{}, err
	}
	return parseMetadata(blob)
}
