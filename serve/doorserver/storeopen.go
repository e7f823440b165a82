package doorserver

import (
	"context"
	"fmt"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

func (d *storeRequests) planOpen(tenant string, m *doorpb.StoreOpen) (job, *door.Problem) {
	if p := checkKey(m.GetKey()); p != nil {
		return nil, p
	}
	if m.GetSizeBytes() == 0 {
		return nil, problem(door.CodeTerms, "room for no bytes; an object has at least one")
	}
	w, p := door.ParseWish(m.GetWish())
	return func(ctx context.Context) storeReply {
		at := openedKey{tenant, string(m.GetKey())}
		o, p := d.reserve(at)
		if p != nil {
			return storeReply{problem: p}
		}
		d.mu.Lock()
		maps := d.maps
		d.mu.Unlock()
		writer, err := d.cache().Open(ctx, Object{tenant, m.GetKey()}, m.GetSizeBytes(), w, maps)
		if err != nil {
			d.forget(at, o)
			return failed(err)
		}
		o.writer = writer
		o.turn <- struct{}{}
		return storeReply{result: &doorpb.StoreResult{Place: writer.Place().Message()}}
	}, p
}

// reserve keeps a place for what is about to be opened, whose turn the caller has.
func (d *storeRequests) reserve(at openedKey) (*opened, *door.Problem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.opened[at] != nil:
		return nil, problem(door.CodeExists, "this connection is writing an object of that key")
	case len(d.opened) >= door.MaxStoreOpen:
		return nil, busy(fmt.Sprintf("%d objects are open on this connection, which is the limit", len(d.opened)))
	}
	o := &opened{turn: make(chan struct{}, 1)}
	d.opened[at] = o
	return o, nil
}

// forget ends what was opened; the caller has its turn and gives it back.
func (d *storeRequests) forget(at openedKey, o *opened) {
	d.mu.Lock()
	delete(d.opened, at)
	d.mu.Unlock()
	o.writer = nil
	o.turn <- struct{}{}
}

// takeTurn waits for what this connection has opened.
func (d *storeRequests) takeTurn(ctx context.Context, at openedKey) (*opened, error) {
	d.mu.Lock()
	o := d.opened[at]
	d.mu.Unlock()
	if o == nil {
		return nil, notOpened()
	}
	select {
	case <-o.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if o.writer == nil {
		o.turn <- struct{}{}
		return nil, notOpened()
	}
	return o, nil
}

func notOpened() *door.Problem {
	return &door.Problem{Code: door.CodeMissing, Message: "this connection has opened no object of that key", Hint: "open it for writing first"}
}

func (d *storeRequests) planWrite(tenant string, m *doorpb.StoreWrite) (job, *door.Problem) {
	if p := checkKey(m.GetKey()); p != nil {
		return nil, p
	}
	if p := (stretches{[]uint64{m.GetAddress()}, []uint64{m.GetSizeBytes()}}).check(1); p != nil {
		return nil, p
	}
	return func(ctx context.Context) storeReply {
		o, err := d.takeTurn(ctx, openedKey{tenant, string(m.GetKey())})
		if err != nil {
			return failed(err)
		}
		defer func() { o.turn <- struct{}{} }()
		size := m.GetSizeBytes() + uint64(len(m.GetValue()))
		if room := o.writer.Place().SizeBytes; m.GetOffset() > room || size > room-m.GetOffset() {
			return storeReply{problem: problem(door.CodeSize, "%d bytes from byte %d of an object of %d", size, m.GetOffset(), room)}
		}
		if m.GetSizeBytes() == 0 {
			return storeReply{result: &doorpb.StoreResult{}, problem: storeProblem(o.writer.Write(ctx, m.GetOffset(), Memory{Bytes: m.GetValue()}))}
		}
		err = d.with(ctx, m.GetAddress(), m.GetSizeBytes(), func(from Memory) error { return o.writer.Write(ctx, m.GetOffset(), from) })
		return storeReply{result: &doorpb.StoreResult{}, problem: storeProblem(err)}
	}, checkValue(len(m.GetValue()), m.GetSizeBytes())
}

func (d *storeRequests) planCommit(tenant string, m *doorpb.StoreCommit) (job, *door.Problem) {
	return func(ctx context.Context) storeReply {
		at := openedKey{tenant, string(m.GetKey())}
		o, err := d.takeTurn(ctx, at)
		if err != nil {
			return failed(err)
		}
		defer d.forget(at, o)
		if m.GetAbort() {
			return storeReply{result: &doorpb.StoreResult{}, problem: storeProblem(o.writer.Abort(ctx))}
		}
		return storeReply{result: &doorpb.StoreResult{}, problem: storeProblem(o.writer.Commit(ctx))}
	}, checkKey(m.GetKey())
}
