package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/fabric"
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

// Bounds of what an agent's record may say.
const (
	maxRecordFabrics = 16
	maxRecordText    = 1 << 10
)

// ParseAgentRecord reads an agent's record as any client that can write to the directory
// left it. What it returns is the key's agent, and bounded in every part.
func ParseAgentRecord(record directory.Record) (AgentRecord, error) {
	refuse := func(why string, args ...any) (AgentRecord, error) {
		return AgentRecord{}, fmt.Errorf("agent: the record at %.80q cannot be used: %s", record.Key, fmt.Sprintf(why, args...))
	}
	if len(record.Value) > directory.MaxValueBytes {
		return refuse("it has %d bytes; %d is the limit", len(record.Value), directory.MaxValueBytes)
	}
	var r AgentRecord
	if err := json.Unmarshal(record.Value, &r); err != nil {
		return refuse("%.200v", err)
	}
	if r.Name == "" || AgentKey(r.Name) != record.Key {
		return refuse("it is of %.80q", r.Name)
	}
	if _, err := kv.ParseID(r.Incarnation); err != nil {
		return refuse("its incarnation is none")
	}
	if len(r.Fabrics) > maxRecordFabrics || len(r.Regions) > maxRecordText || len(r.Lock) > maxRecordText {
		return refuse("it names %d fabrics and has a digest of %d bytes and a lock of %d", len(r.Fabrics), len(r.Regions), len(r.Lock))
	}
	for name, address := range r.Fabrics {
		if len(name) > maxRecordText || len(address) > maxRecordText || strings.ContainsFunc(name+address, unicode.IsControl) {
			return refuse("%.80q is no address at fabric %.80q", address, name)
		}
	}
	return r, nil
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
	lease, err := a.options.Directory.Grant(ctx, directory.LeaseOptions{})
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
	entry := directory.Entry{Key: AgentKey(a.options.Name), Value: value, Lease: a.lease}
	standing, err := a.options.Directory.Create(ctx, entry)
	if !errors.Is(err, directory.ErrExists) {
		return err
	}
	r, err := ParseAgentRecord(standing)
	ours := err == nil && r.Incarnation == a.incarnation.String()
	dead := err == nil && a.options.Lock != "" && r.Lock == a.options.Lock
	if !ours && !dead {
		return fmt.Errorf("agent: the name %q is held by incarnation %s; stop that agent, or wait until its lease ends", a.options.Name, cmp.Or(r.Incarnation, "unknown"))
	}
	_, err = a.options.Directory.Swap(ctx, entry, standing.Revision)
	return err
}

// Find looks a peer up in the directory and fetches its metadata from it.
// Another process that answers at its address is refused.
func (a *Agent) Find(ctx context.Context, name string) (*Peer, error) {
	if a.options.Directory == nil {
		return nil, errors.New("agent: there is no directory to look in; use Fetch or LoadMetadata")
	}
	record, err := a.options.Directory.Get(ctx, AgentKey(name))
	if err != nil {
		return nil, err
	}
	r, err := ParseAgentRecord(record)
	if err != nil {
		return nil, err
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
