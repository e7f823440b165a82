package sim

import (
	"context"
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// rail is a fabric of the world: one of the ways an agent can move bytes. It does
// what move/fabric/tcp does, or what move/fabric/host does, with streams that are made up.
type rail struct {
	process  *process
	number   int
	self     agent.Self
	regions  fabric.Regions
	links    []*peerLink
	services []*connection
	closed   bool
}

var (
	_ fabric.Fabric  = (*rail)(nil)
	_ fabric.Fetcher = (*rail)(nil)
	_ fabric.Revoker = (*rail)(nil)
)

// Name is "rail" and its number.
func (r *rail) Name() string { return fmt.Sprintf("rail%d", r.number) }

// Capabilities are those of move/fabric/tcp, for the memory there is here.
func (r *rail) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{
		Local: true, Read: true, Write: true, Notify: true, Kinds: []mem.Kind{mem.DRAM},
	}
}

// Register makes a region reachable.
func (r *rail) Register(region fabric.Region) error { return r.regions.Add(region) }

// Deregister fences a region.
func (r *rail) Deregister(_ context.Context, id uint64) error {
	if err := r.regions.Remove(id); err != nil {
		return err
	}
	cause := fmt.Errorf("%w: region %d was deregistered", fabric.ErrUnknownRegion, id)
	for _, l := range slices.Clone(r.links) {
		if l.current != nil {
			l.current.poster.Fence(id, cause)
		}
	}
	for _, c := range slices.Clone(r.services) {
		c.server.Fence(id, cause)
	}
	return nil
}

// Revoke stops everything that runs under a grant.
func (r *rail) Revoke(_ context.Context, grant kv.ID) error {
	for _, c := range slices.Clone(r.services) {
		c.server.Revoke(grant, fabric.ErrGrantRevoked)
	}
	return nil
}

// Address is the host's name.
func (r *rail) Address() []byte { return []byte(r.process.host.name) }

// Connect reaches a peer at once, or not at all.
func (r *rail) Connect(_ context.Context, p fabric.Peer) (fabric.Link, error) {
	if r.closed {
		return nil, fabric.ErrClosed
	}
	l := &peerLink{rail: r, peer: p}
	if _, err := l.connected(); err != nil {
		return nil, err
	}
	r.links = append(r.links, l)
	return l, nil
}

// Fetch asks the process at an address for its metadata.
func (r *rail) Fetch(_ context.Context, address []byte) ([]byte, error) {
	peer, err := r.reach(address)
	if err != nil {
		return nil, err
	}
	return peer.self.Metadata(), nil
}

// reach finds who answers at an address, if the network lets it.
func (r *rail) reach(address []byte) (*rail, error) {
	w := r.process.world
	for _, h := range w.hosts {
		if h.name != string(address) {
			continue
		}
		switch {
		case r.process.dead || !w.network.open(r.number, r.process.host, h):
			return nil, fmt.Errorf("%w: no way to %s", fabric.ErrPeerGone, h.name)
		case h.process == nil || h.process.rails[r.number].closed:
			return nil, fmt.Errorf("%w: no process listens at %s", fabric.ErrPeerGone, h.name)
		case h.process.pausedUntil > w.now && h.process != r.process:
			return nil, fmt.Errorf("%w: %s does not answer", fabric.ErrPeerGone, h.name)
		}
		return h.process.rails[r.number], nil
	}
	return nil, fmt.Errorf("%w: no host %q", fabric.ErrPeerGone, address)
}

// Close ends every connection.
func (r *rail) Close(ctx context.Context) error {
	r.closed = true
	for _, l := range slices.Clone(r.links) {
		_ = l.Close(ctx)
	}
	for _, c := range slices.Clone(r.services) {
		c.server.Lost(fabric.ErrClosed)
	}
	return nil
}

// eventChecker looks at what a fabric tells its agent.
type eventChecker struct {
	fabric.Events
	process *process
}

// Notified is where a notification is delivered.
func (v eventChecker) Notified(n fabric.Notification) (fabric.NotificationHandler, error) {
	_, err := v.Events.Notified(n)
	v.process.world.delivered(v.process, n, err)
	if err != nil || !v.process.world.swarm.attends {
		return nil, err
	}
	return v, nil
}

// Handle has nothing to do: that there is an handler lets receipts wait.
func (v eventChecker) Handle(fabric.Notification) {}
