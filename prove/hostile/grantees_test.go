package hostile

import (
	"context"
	"encoding/binary"

	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// Grant is what the target has opened to an attacker: the first Bytes of a
// region, for reading and for writing.
type Grant struct {
	Read, Write          kv.ID
	Region, Epoch, Bytes uint64
}

// list names the first bytes of what was granted, as one piece.
func (g Grant) list(bytes uint64) []byte {
	part := fabric.Part{Region: g.Region, Epoch: g.Epoch}
	if err := part.Spans.Add(0, bytes); err != nil {
		panic(err) // one span always fits
	}
	return fabric.List{part}.AppendTo(nil)
}

// write begins a write of some bytes, as the only part of a transfer.
func (g Grant) write(handle uint32, id kv.ID, bytes uint64) mrdn.Begin {
	return mrdn.Begin{Handle: handle, ID: id, Grant: g.Write, Write: true, Parts: 1, Bytes: bytes, List: g.list(bytes)}
}

// payload appends a chunk of a part, whose checksum is right.
func payload(b []byte, handle uint32, bytes int) []byte {
	start := len(b)
	b = append(b, make([]byte, mrdn.ChunkHeaderSize+bytes)...)
	mrdn.Chunk{Handle: handle, Length: uint32(bytes)}.Put(b[start:])
	return binary.LittleEndian.AppendUint64(b, checksum.Of(b[start+mrdn.ChunkHeaderSize:]))
}

// sameHandle begins one transfer after another under one handle.
func sameHandle(ctx context.Context, a *Attacker) {
	a.flood(ctx, func(uint32) []byte { return a.Grant.write(1, newID(), 1000).Append(nil) })
}

// overlaps writes the same bytes as every part of one transfer, in turns.
func overlaps(ctx context.Context, a *Attacker) {
	const parts = 8
	a.flood(ctx, func(n uint32) (said []byte) {
		id := newID()
		for part := range uint32(parts) {
			begin := a.Grant.write(n*parts+part, id, 2000)
			begin.Part, begin.Parts = uint16(part), parts
			said = begin.Append(said)
		}
		for turn := range uint32(2 * parts) {
			said = payload(said, n*parts+turn%parts, 1000)
		}
		return said
	})
}

// begun begins transfers, and sends nothing of them.
func begun(ctx context.Context, a *Attacker) {
	a.flood(ctx, func(n uint32) []byte { return a.Grant.write(n, newID(), 1000).Append(nil) })
}

// parts begins all the parts that a transfer can have, and sends none.
func parts(ctx context.Context, a *Attacker) {
	const most = 1<<16 - 1
	id := newID()
	a.flood(ctx, func(n uint32) []byte {
		if n%most == 0 {
			id = newID()
		}
		begin := a.Grant.write(n, id, 1000)
		begin.Part, begin.Parts = uint16(n%most), most
		return begin.Append(nil)
	})
}

// promises begins transfers with long notifications that are never due.
func promises(ctx context.Context, a *Attacker) {
	long := make([]byte, 1<<20)
	a.flood(ctx, func(n uint32) []byte {
		begin := a.Grant.write(n, newID(), 1000)
		begin.Notify, begin.Notification = true, long
		return begin.Append(nil)
	})
}

// pieces begins transfers of a byte here and a byte there, and sends nothing.
func pieces(ctx context.Context, a *Attacker) {
	const count = 200_000
	long := scattered(a.Grant.Region, count)
	a.flood(ctx, func(n uint32) []byte {
		begin := a.Grant.write(n, newID(), count)
		begin.List = long
		return begin.Append(nil)
	})
}

// tooMuch sends more than it began.
func tooMuch(ctx context.Context, a *Attacker) {
	a.flood(ctx, func(n uint32) []byte { return payload(a.Grant.write(n, newID(), 1000).Append(nil), n, 2000) })
}

// late begins what it has sent already.
func late(ctx context.Context, a *Attacker) {
	a.flood(ctx, func(n uint32) []byte { return a.Grant.write(n, newID(), 1000).Append(payload(nil, n, 1000)) })
}

// halfway sends half of a transfer, cancels it, sends the rest and begins it
// again.
func halfway(ctx context.Context, a *Attacker) {
	a.flood(ctx, func(n uint32) []byte {
		id := newID()
		said := payload(a.Grant.write(2*n, id, 2000).Append(nil), 2*n, 1000)
		said = payload(mrdn.Cancel{ID: id}.Append(said), 2*n, 1000)
		return payload(a.Grant.write(2*n+1, id, 2000).Append(said), 2*n+1, 1000)
	})
}

// broken sends bytes whose checksum is wrong, and goes on with the rest.
func broken(ctx context.Context, a *Attacker) {
	a.flood(ctx, func(n uint32) []byte {
		said := payload(a.Grant.write(n, newID(), 2000).Append(nil), n, 1000)
		said[len(said)-1]++
		return payload(said, n, 1000)
	})
}

// unread asks for all that it may read, and reads nothing.
func unread(ctx context.Context, a *Attacker) {
	all := a.Grant.list(a.Grant.Bytes)
	a.flood(ctx, func(n uint32) []byte {
		return mrdn.Begin{Handle: n, ID: newID(), Grant: a.Grant.Read, Parts: 1, Bytes: a.Grant.Bytes, List: all}.Append(nil)
	})
}

// again asks for one thing over and over, and reads nothing.
func again(ctx context.Context, a *Attacker) {
	id := newID()
	frame := mrdn.Begin{Handle: 1, ID: id, Grant: a.Grant.Read, Parts: 3, Bytes: a.Grant.Bytes, List: a.Grant.list(a.Grant.Bytes)}.Append(nil)
	a.flood(ctx, func(uint32) []byte { return frame })
}
