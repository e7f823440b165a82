package hostile

import (
	"context"
	"sync/atomic"
	"time"

	"meridian/kv"
	"meridian/move/mrdn"
)

// manyLinks opens links without end, and uses none.
func manyLinks(ctx context.Context, a *Attacker) {
	a.hold(ctx, func(ctx context.Context) {
		if conn := a.join(ctx); conn != nil {
			a.awaitEnd(conn)
		}
	})
}

// deaf says that it lives, asks whether the target does, and never hears the
// answer.
func deaf(ctx context.Context, a *Attacker) {
	var signs []byte
	for range 500 {
		signs = mrdn.AppendPong(mrdn.AppendPing(signs))
	}
	a.flood(ctx, func(uint32) []byte { return signs })
}

// asking wants what it may not read, and never hears the refusal.
func asking(ctx context.Context, a *Attacker) {
	one := list(1)
	a.flood(ctx, func(n uint32) []byte {
		return mrdn.Begin{Handle: n, ID: newID(), Grant: newID(), Parts: 1, Bytes: 1, List: one}.Append(nil)
	})
}

// offering announces what it may not write, and never sends it.
func offering(ctx context.Context, a *Attacker) {
	some := list(1000)
	a.flood(ctx, func(n uint32) []byte {
		return mrdn.Begin{Handle: n, ID: newID(), Grant: newID(), Write: true, Parts: 1, Bytes: 1000, List: some}.Append(nil)
	})
}

// halves promises frames of four MiB and sends them at a byte a second.
func halves(ctx context.Context, a *Attacker) {
	a.hold(ctx, func(ctx context.Context) {
		conn := a.join(ctx)
		if conn == nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write(prefix(mrdn.BeginFrame, mrdn.MaxLinkFrame)); err != nil {
			return
		}
		a.tally.frames.Add(1)
		for ctx.Err() == nil {
			pause(ctx, time.Second)
			if _, err := conn.Write([]byte{0}); err != nil {
				a.tally.failures.Add(1)
				return
			}
		}
	})
}

// nearly sends all but the last byte of the largest frame, on every stream that
// it can have.
func nearly(ctx context.Context, a *Attacker) {
	var ids [links]kv.ID
	for i := range ids {
		ids[i] = newID()
	}
	frame := append(prefix(mrdn.BeginFrame, mrdn.MaxLinkFrame), make([]byte, mrdn.MaxLinkFrame-1)...)
	var next atomic.Uint32
	a.hold(ctx, func(ctx context.Context) {
		conn := a.joinLink(ctx, ids[next.Add(1)%links])
		if conn == nil {
			return
		}
		if _, err := conn.Write(frame); err == nil {
			a.tally.frames.Add(1)
		}
		a.awaitEnd(conn)
	})
}

// lists asks for a byte here and a byte there, half a million times.
func lists(ctx context.Context, a *Attacker) {
	const pieces = 500_000
	long := list(pieces)
	a.flood(ctx, func(n uint32) []byte {
		return mrdn.Begin{Handle: n, ID: newID(), Grant: newID(), Parts: 1, Bytes: pieces, List: long}.Append(nil)
	})
}

// cancels begins and cancels, with a new id each time.
func cancels(ctx context.Context, a *Attacker) {
	one := list(1)
	a.flood(ctx, func(n uint32) []byte {
		id := newID()
		frame := mrdn.Begin{Handle: n, ID: id, Grant: newID(), Write: true, Parts: 2, Bytes: 1, List: one}.Append(nil)
		return mrdn.Cancel{ID: id}.Append(frame)
	})
}

// notices sends notifications that the owner did not ask for.
func notices(ctx context.Context, a *Attacker) {
	payload := make([]byte, 64<<10)
	a.flood(ctx, func(uint32) []byte { return mrdn.Notice{ID: newID(), Payload: payload}.Append(nil) })
}

// chunks sends bytes that no request announced.
func chunks(ctx context.Context, a *Attacker) {
	frame := make([]byte, mrdn.ChunkHeaderSize+mrdn.MaxChunk+mrdn.ChunkTrailerSize)
	a.flood(ctx, func(n uint32) []byte {
		mrdn.Chunk{Handle: n, Length: mrdn.MaxChunk}.Put(frame)
		return frame
	})
}

// crumbs sends bytes that no request announced, one at a time.
func crumbs(ctx context.Context, a *Attacker) {
	const each = mrdn.ChunkHeaderSize + 1 + mrdn.ChunkTrailerSize
	some := make([]byte, 1000*each)
	a.flood(ctx, func(n uint32) []byte {
		for at := 0; at < len(some); at += each {
			mrdn.Chunk{Handle: n, Length: 1}.Put(some[at:])
		}
		return some
	})
}

// repeats says one thing over and over.
func repeats(ctx context.Context, a *Attacker) {
	id := newID()
	frame := mrdn.Begin{Handle: 1, ID: id, Grant: newID(), Write: true, Parts: 3, Bytes: 1000, List: list(1000)}.Append(nil)
	a.flood(ctx, func(uint32) []byte { return frame })
}
