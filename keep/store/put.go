package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// PutOptions say how an object is to be kept. The zero value is plain.
type PutOptions struct {
	// Preferred names the owner that is asked first; others are, when it has no room.
	Preferred string
	// Pinned objects are not evicted. Priority counts where the policy is ByPriority.
	Pinned   bool
	Priority uint8
	PageSize uint32
	// Tenant is whose key it is; default the store's.
	Tenant string
}

func (o PutOptions) attributes() protocol.Attributes {
	return protocol.Attributes{PageSize: o.PageSize, Pinned: o.Pinned, Priority: o.Priority}
}

// Put stores a value under a key that has none. When it returns nil, the object can
// be got. ErrUnavailable says that it is not known whether it can.
func (s *Store) Put(ctx context.Context, key string, value []byte, o PutOptions) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = s.put(ctx, key, value, o)
	s.counters.put(uint64(len(value)), err)
	return err
}

func (s *Store) put(ctx context.Context, key string, value []byte, o PutOptions) error {
	name, err := s.nameOf(o.Tenant, key)
	if err != nil {
		return err
	}
	if len(value) > protocol.MaxInline {
		return s.putLarge(ctx, name, value, o)
	}
	return s.store(ctx, operation{
		name: name, preferred: o.Preferred, request: &protocol.Put{Name: name, Value: value, Attributes: o.attributes()},
		ask: func(ctx context.Context, to kv.Member, m protocol.Message) (protocol.Message, error) {
			if to == s.self { // it is stored after this call may have returned
				own := *m.(*protocol.Put)
				own.Value = bytes.Clone(value)
				m = &own
			}
			return s.ask(ctx, to, m, taking{})
		},
	})
}

// putLarge has an owner read the value, and does so again when other bytes arrived:
// then nothing was stored.
func (s *Store) putLarge(ctx context.Context, name, value []byte, o PutOptions) error {
	from := &source{store: s, value: value}
	defer from.close()
	for {
		began := s.options.Clock.Now()
		err := s.store(ctx, operation{
			name: name, preferred: o.Preferred, request: &protocol.PutFrom{Name: name, Attributes: o.attributes()},
			ask: func(ctx context.Context, to kv.Member, m protocol.Message) (protocol.Message, error) {
				span, shut, err := from.lend(ctx, to)
				if err != nil {
					return nil, fmt.Errorf("%w: %w", errUndelivered, err)
				}
				defer shut()
				own := *m.(*protocol.PutFrom)
				own.Source = span
				return s.ask(ctx, to, &own, taking{})
			},
		})
		if err == nil {
			s.counters.wrote(uint64(len(value)), uint64(cmp.Or(o.PageSize, arena.PageSize)), s.options.Clock.Now().Sub(began))
		}
		if !errors.Is(err, ErrTorn) {
			return err
		}
		if s.counters.torn.Add(1); !s.pause(ctx, tickPause) {
			return err
		}
	}
}

// store does a request that brings an object.
func (s *Store) store(ctx context.Context, o operation) error {
	answer, from, err := s.operate(ctx, o)
	if err != nil {
		return err
	}
	if _, is := answer.(*protocol.Reply); !is {
		return unexpected(from, answer)
	}
	return nil
}

// WritePlan is an object that its caller writes: where, and until when it is
// committed or aborted. Its methods may be called from several goroutines.
type WritePlan struct {
	// Owner keeps it, Rank is the number of that name; -1 where the owner has just gone.
	Owner string
	Rank  int
	owner.Plan

	store   *Store
	peer    kv.Member
	span    protocol.Span
	written writeSums // to another agent, by Write

	mu     sync.Mutex // protects the rest
	over   bool       // it was committed or aborted
	stored bool       // its caller writes no more where it lies
}

// OpenForWrite makes room for an object of so many bytes. Who opens it writes it, and
// then calls Commit, or Abort.
func (s *Store) OpenForWrite(ctx context.Context, key string, size uint64, o PutOptions) (*WritePlan, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	plan, err := s.open(ctx, key, &protocol.Open{Bytes: size}, o)
	if err != nil {
		s.counters.put(0, err)
	}
	return plan, err
}

func (s *Store) open(ctx context.Context, key string, m *protocol.Open, o PutOptions) (*WritePlan, error) {
	name, err := s.nameOf(o.Tenant, key)
	if err != nil {
		return nil, err
	}
	m.Name, m.Attributes = name, o.attributes()
	answer, from, err := s.operate(ctx, operation{name: name, preferred: o.Preferred, request: m})
	if err != nil {
		return nil, err
	}
	said, is := answer.(*protocol.Plan)
	if !is || said.Bytes != m.Bytes || said.Span.Length != m.Bytes {
		return nil, unexpected(from, answer)
	}
	p := &WritePlan{Owner: from.Name, Rank: s.rank(from.Name), Plan: said.Plan, store: s, peer: from, span: said.Span, written: writeSums{bytes: m.Bytes}}
	return p, nil
}

// Memory is the object's bytes, when its owner is in this process and its time is
// not over; else nil. The caller writes to it only before it commits or aborts.
func (p *WritePlan) Memory() []byte {
	if !p.Map() {
		return nil
	}
	return p.store.owned.memory.Bytes(p.span.Offset, p.span.Length)
}

// Map says that the object's bytes are stored where they lie, by a caller of Memory or
// a process that maps the arena. Nothing can stop that: so its room is kept until
// Commit or Abort, however late. It is false when the owner is not in this process,
// the writer's time is over, or as much is kept for others as may be.
func (p *WritePlan) Map() bool { return p.storeBy(true) }

// storeBy is Map for a program, or for a hand-off of this process.
func (p *WritePlan) storeBy(program bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peer == p.store.self && !p.stored && p.store.owned.setMapped(p.span.Grant, p.span.Length, program)
}

// stopStoring says that nothing is stored where the object lies any more. It comes
// first when a writer ends, whatever becomes of the rest: else its room and its key
// would be kept for a writer that is not there.
func (p *WritePlan) stopStoring() {
	p.mu.Lock()
	p.stored = true
	p.mu.Unlock()
	if p.peer == p.store.self {
		p.store.owned.unmap(p.span.Grant)
	}
}

// Write writes bytes of the object, from an offset on.
func (p *WritePlan) Write(ctx context.Context, offset uint64, data []byte) error {
	ctx, leave, err := p.store.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return p.write(ctx, offset, data)
}

func (p *WritePlan) write(ctx context.Context, offset uint64, data []byte) error {
	size := uint64(len(data))
	if offset > p.Bytes || size > p.Bytes-offset {
		return fmt.Errorf("store: %d bytes from %d on do not fit into an object of %d", size, offset, p.Bytes)
	}
	if size == 0 {
		return nil
	}
	s, began := p.store, p.store.options.Clock.Now()
	var err error
	if p.peer == s.self {
		err = s.owned.write(p.span, offset, data)
	} else {
		err = p.writeAway(ctx, offset, data)
	}
	if err == nil {
		s.counters.wrote(size, uint64(p.PageSize), s.options.Clock.Now().Sub(began))
	}
	return err
}

// writeAway writes to another agent's memory: from a Buffer where it lies, else
// through the landing.
func (p *WritePlan) writeAway(ctx context.Context, offset uint64, data []byte) error {
	s := p.store
	from, is := s.buffered(data)
	if !is {
		staged, giveBack, err := s.landing.take(ctx, uint64(len(data)))
		if err != nil {
			return err
		}
		defer giveBack()
		p.written.take(offset, staged.bytes(), data)
		from = staged
	} else {
		p.written.take(offset, nil, data)
	}
	local, err := s.options.Agent.LocalSpans(from.list())
	if err != nil {
		return err
	}
	if p.span.Offset > 1<<62 {
		return fmt.Errorf("%w: a plan at %d", protocol.ErrMessage, p.span.Offset)
	}
	region := agent.RegionInfo{ID: p.span.Region, Epoch: p.span.Epoch}
	err = s.move(ctx, moving{
		op: fabric.Write, peer: p.peer, local: local, remote: spans(region, p.span.Offset+offset, from.length), post: agent.PostOptions{Grant: p.span.Grant},
	})
	if err != nil {
		return fmt.Errorf("%w: writing to %s: %w", ErrUnavailable, p.Owner, err)
	}
	return nil
}

// Commit lets the object be found, when all of it is written. Where every segment of
// checksum.Segment bytes was written to another agent in one piece, the owner compares:
// ErrTorn says that other bytes lie there, and nothing is stored.
func (p *WritePlan) Commit(ctx context.Context) error {
	p.stopStoring()
	ctx, leave, err := p.store.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = p.commit(ctx, false)
	p.store.counters.put(p.Bytes, err)
	return err
}

// Abort gives the object up. One that is over is none.
func (p *WritePlan) Abort(ctx context.Context) error {
	p.stopStoring()
	ctx, leave, err := p.store.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := p.commit(ctx, true); !errors.Is(err, ErrStale) {
		return err
	}
	return nil
}

func (p *WritePlan) commit(ctx context.Context, abort bool) error {
	p.mu.Lock()
	over := p.over
	p.over = true
	p.mu.Unlock()
	if over {
		return fmt.Errorf("%w: it was committed or aborted before", ErrStale)
	}
	s := p.store
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.Timeout)
		defer cancel()
	}
	message := &protocol.Commit{Header: p.Header, Epoch: p.Epoch, KeyHash: p.KeyHash, Abort: abort}
	message.Checksum, message.Summed = p.written.sum()
	_, err := s.askPatiently(ctx, p.peer, message)
	if errors.Is(err, ErrTorn) {
		s.counters.torn.Add(1)
	}
	return err
}
