package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// gather is what writeLoop writes at a time: frames, or a chunk of a part,
// straight from the memory that it lies in. Only writeLoop calls it, but for
// detach.
type gather struct {
	options *Options
	socket  *socket
	header  [mrdn.ChunkHeaderSize]byte
	trailer [mrdn.ChunkTrailerSize]byte
	owed    [mrdn.ChunkTrailerSize]byte // trailer of the chunk before
	// owesTrailer: the last chunk's checksum goes out with whatever is next.
	owesTrailer bool
	staging     []byte // of memory that is not mapped
	sealing     []byte // a record of several pieces
	// ready is try, made once: a closure per call would allocate.
	ready func(fd uintptr) bool
	err   error // of the last try

	mu      sync.Mutex // held around every use of a part's memory; protects the rest
	vector  vector
	sending *outbound
	sum     checksum.Digest
	plain   int // bytes at the front of vector that are no payload
	// summed: the checksum is in vector already.
	summed bool
}

func newGather(k *socket, o *Options) *gather {
	g := &gather{options: o, socket: k}
	if g.ready = g.try; k.tls != nil {
		g.ready = g.trySealed
	}
	return g
}

// begin empties the vector but for the trailer of the chunk before.
func (g *gather) begin() {
	g.vector.reset()
	g.plain, g.summed = 0, false
	if g.owesTrailer {
		g.owed = g.trailer
		g.vector.add(g.owed[:])
		g.plain = len(g.owed)
		g.owesTrailer = false
	}
}

// writeFrames writes frames.
func (g *gather) writeFrames(frames []byte) error {
	g.mu.Lock()
	g.begin()
	g.vector.add(frames)
	g.plain += len(frames)
	g.mu.Unlock()
	return g.write()
}

// writeChunk writes the next chunk of p, unless p was stopped; the first one
// behind the frame that begins it. Its bytes have been fetched, if they are a GPU's. A
// readErr means that its memory could not be read, and that nothing has left.
func (g *gather) writeChunk(p *outbound, first bool, chunk fetched) (readErr, err error) {
	g.mu.Lock()
	if p.stopped.Load() {
		g.mu.Unlock()
		return nil, nil
	}
	g.sending = p
	owed := g.owesTrailer
	g.begin()
	if first {
		g.vector.add(p.Begin)
		g.plain += len(p.Begin)
	}
	if readErr = g.collect(p, chunk); readErr != nil {
		g.owesTrailer = owed // it has not left either
	}
	g.mu.Unlock()
	if readErr == nil {
		err = g.write()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sending = nil
	if readErr == nil && !g.summed {
		binary.LittleEndian.PutUint64(g.trailer[:], g.sum.Sum())
		g.owesTrailer = true
	}
	return readErr, err
}

// collect adds a header and the next bytes of p to the vector, which are those of chunk if
// it has any. mu is held.
func (g *gather) collect(p *outbound, chunk fetched) error {
	g.vector.add(g.header[:])
	g.plain += len(g.header)
	size := min(uint64(g.options.ChunkBytes), p.Walk.Left())
	g.sum.Reset()
	taken := uint64(0)
	staged := 0
	if len(chunk.bytes) > 0 {
		taken, size = uint64(len(chunk.bytes)), 0
		g.vector.add(chunk.bytes)
		p.Walk = chunk.after
	}
	var cut fabric.Cut
	for taken < size && len(g.vector.pieces) < maxPieces {
		cut = p.Walk.Next(size - taken)
		section := p.Bound.Section(cut.Part)
		var piece []byte
		if section.Mapped() {
			piece = section.Bytes(cut.Offset, cut.Length)
		} else {
			if g.staging == nil {
				g.staging = make([]byte, g.options.ChunkBytes)
			}
			piece = g.staging[staged : staged+int(cut.Length)]
			if err := section.ReadAt(piece, cut.Offset); err != nil {
				return err
			}
			staged += int(cut.Length)
		}
		g.vector.add(piece)
		taken += cut.Length
	}
	mrdn.Chunk{Handle: p.Handle, Length: uint32(taken)}.Put(g.header[:])
	known := []byte(nil)
	if p.Sums != nil && cut.Length == taken && !g.options.NoChecksums { // in one piece
		known = p.Sums.Known(p.Bound.List[cut.Part].Region, cut.Offset, taken)
	}
	switch {
	case chunk.summed:
		g.trail(chunk.sum)
	case known != nil:
		g.trail(checksum.OfSums(known))
	case p.Walk.Left() == 0:
		g.sumNow()
	}
	return nil
}

// sumNow hashes the payload before it leaves, so that the checksum leaves with
// it. The last chunk of a part is sent so: there may be nothing after it that
// its checksum could go with. mu is held.
func (g *gather) sumNow() {
	skip := g.plain
	g.vector.each(func(b []byte) {
		plain := min(skip, len(b))
		skip -= plain
		if !g.options.NoChecksums {
			g.sum.Add(b[plain:])
		}
	})
	g.trail(g.sum.Sum())
}

// trail sends a checksum right behind its chunk. mu is held.
func (g *gather) trail(sum uint64) {
	binary.LittleEndian.PutUint64(g.trailer[:], sum)
	g.vector.add(g.trailer[:])
	g.summed = true
}

// detach gives p's memory back. If it is being sent, the rest of the chunk goes
// on from a copy, so that the peer's checksum stays right.
func (g *gather) detach(p *outbound) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sending == p {
		g.vector.detach()
	}
	p.Release()
}

// write writes the whole vector, waiting for the socket as needed.
func (g *gather) write() error {
	g.err = nil
	if err := g.socket.raw.Write(g.ready); err != nil {
		return err
	}
	return g.err
}

// try is called whenever the socket may take bytes. It takes mu for each system
// call only, so that detach can come between two of them.
func (g *gather) try(fd uintptr) (done bool) {
	for {
		g.mu.Lock()
		if g.vector.bytes == 0 {
			g.mu.Unlock()
			return true
		}
		n, err := g.vector.transfer(unix.SYS_WRITEV, fd)
		for left := n; err == nil && left > 0; {
			left -= len(g.take(left))
		}
		g.mu.Unlock()
		switch {
		case err == nil && n == 0:
			g.err = io.ErrShortWrite
			return true
		case err == nil:
			g.socket.spoke.Store(true)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			g.err = fmt.Errorf("tcp: write: %w", err)
			return true
		}
	}
}

// take uses up at most n bytes of the vector, and hashes what is payload: the
// kernel has just copied it, or the caller is about to, so it is in the cache.
func (g *gather) take(n int) []byte {
	b := g.vector.take(n)
	plain := min(g.plain, len(b))
	g.plain -= plain
	if !g.options.NoChecksums && !g.summed {
		g.sum.Add(b[plain:])
	}
	return b
}

// trySealed is try through TLS: it seals and sends record by record.
func (g *gather) trySealed(fd uintptr) (done bool) {
	defer g.socket.sealed.rest()
	for {
		g.mu.Lock()
		left := g.vector.bytes
		g.mu.Unlock()
		taken, err := g.socket.sealed.flush(fd, left > maxRecord)
		if err == nil && taken && left > 0 {
			err = g.sealRecord()
		}
		switch {
		case err != nil:
			g.err = err
			return true
		case !taken:
			return false
		case left == 0:
			return true
		}
		g.socket.spoke.Store(true)
	}
}

// sealRecord seals the next record of the vector, from where its bytes lie if
// they lie in one piece.
func (g *gather) sealRecord() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	record := g.take(maxRecord)
	if len(record) < maxRecord && g.vector.bytes > 0 {
		if g.sealing == nil {
			g.sealing = make([]byte, maxRecord)
		}
		n := copy(g.sealing, record)
		for n < maxRecord && g.vector.bytes > 0 {
			n += copy(g.sealing[n:], g.take(maxRecord-n))
		}
		record = g.sealing[:n]
	}
	_, err := g.socket.tls.Write(record)
	return err
}
