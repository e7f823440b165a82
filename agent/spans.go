package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"meridian/fabric"
	"meridian/kv"
)

// PrepareSpans is Prepare for callers that know regions and strides: blocks at
// equal distances stay one run from the plan to the wire.
func (a *Agent) PrepareSpans(op fabric.Op, local fabric.List, peer *Peer, remote fabric.List) (*Request, error) {
	if peer == nil || peer.agent != a {
		return nil, errors.New("agent: a request needs a peer that this agent has loaded")
	}
	here, err := outline(&List{agent: a, regions: a.Regions()}, local)
	if err != nil {
		return nil, fmt.Errorf("local list: %w", err)
	}
	there, err := outline(&List{agent: a, peer: peer, regions: peer.Regions()}, remote)
	if err != nil {
		return nil, fmt.Errorf("remote list: %w", err)
	}
	r := &Request{
		agent: a, peer: peer, op: op, local: local, remote: remote, prepared: make(map[string]*fabric.Prepared),
		bytes: local.Bytes(), pieces: max(local.Pieces(), remote.Pieces()),
	}
	if remote.Bytes() != r.bytes {
		return nil, fmt.Errorf("%w: local %d bytes, remote %d", fabric.ErrLengths, r.bytes, remote.Bytes())
	}
	r.choices = choose(op, here.kinds, there.kinds, r.candidates(here, there))
	if r.choices[0].Refused != "" {
		return nil, fmt.Errorf("%w: no fabric can %v between these lists (%s)", fabric.ErrUnsupported, op, describe(r.choices))
	}
	return r, nil
}

// GrantSpans is Grant for such a list of this agent's memory; o.Side is not
// looked at.
func (a *Agent) GrantSpans(o GrantOptions, list fabric.List) (kv.ID, error) {
	switch {
	case o.Peer == "":
		return kv.ID{}, errors.New("agent: a grant is for one peer: name it")
	case o.Op != fabric.Read && o.Op != fabric.Write:
		return kv.ID{}, fmt.Errorf("agent: a grant is for reading or for writing, not for operation %d", o.Op)
	case o.For <= 0:
		return kv.ID{}, fmt.Errorf("agent: a grant for %v would never hold", o.For)
	}
	if _, err := outline(&List{agent: a, regions: a.Regions()}, list); err != nil {
		return kv.ID{}, err
	}
	row := &grant{peer: o.Peer, incarnation: o.Incarnation, op: o.Op, until: a.options.Clock.Now().Add(o.For), opened: open(list)}
	id, err := a.grants.issue(a.newID(), row, a.options.Clock.Now())
	if err == nil {
		a.audit.note(slog.LevelInfo, "granted", "grant", short(id), "peer", o.Peer, "op", o.Op.String(), "bytes", list.Bytes(), "for", o.For)
	}
	return id, err
}

// outline finds the regions of a list, one piece for each part of it: enough to
// know which kinds of memory it is and which fabrics reach it.
func outline(l *List, list fabric.List) (*List, error) {
	touched := make([]bool, len(l.regions))
	for i := range list {
		part := &list[i]
		at := slices.IndexFunc(l.regions, func(r RegionInfo) bool { return r.ID == part.Region })
		if at < 0 {
			return nil, fmt.Errorf("%w: %d", fabric.ErrUnknownRegion, part.Region)
		}
		if have := l.regions[at].Epoch; have != part.Epoch {
			return nil, fmt.Errorf("%w: region %d is known at epoch %d, the list names %d", fabric.ErrStaleEpoch, part.Region, have, part.Epoch)
		}
		if err := part.Spans.Check(l.regions[at].Length); err != nil {
			return nil, fmt.Errorf("region %d: %w", part.Region, err)
		}
		touched[at] = true
		l.pieces = append(l.pieces, piece{length: part.Spans.Bytes(), region: uint32(at)})
	}
	l.survey(touched)
	return l, nil
}
