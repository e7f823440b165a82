package link

import (
	"fmt"
	"slices"

	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// Cuts is what Prepare works out once: how a request is cut into parts, each
// for a stream of its own.
type Cuts []Cut

// Cut is one part of a request.
type Cut struct {
	bytes  uint64
	local  fabric.Walk
	remote fabric.List // where in the peer's memory
	list   []byte      // …as it is sent
	from   fabric.List // where in local memory, of a write that is lent
	source []byte      // …as it is sent
}

// listBytes is how many bytes the lists of all cuts take on the wire.
func (c Cuts) listBytes() (total int) {
	for i := range c {
		total += len(c[i].list) + len(c[i].source)
	}
	return total
}

// wholePart is the size below which cutting costs more than it gains.
const wholePart = 512 << 10

// partAlign keeps segments of a checksum, which are counted from the first byte, in one
// part each.
const partAlign = 4 << 10

// Cutter says how requests are cut: for how many streams, and from how many
// bytes on a part is worth a stream of its own.
type Cutter struct {
	Streams   int
	WholePart uint64
	// Lend is for streams that lend memory instead of sending its bytes.
	Lend bool
}

// CutFor cuts for so many streams that carry bytes.
func CutFor(streams int) Cutter { return Cutter{Streams: streams, WholePart: wholePart} }

// Prepare checks a request and cuts it.
func (c Cutter) Prepare(regions *fabric.Regions, op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	p, err := fabric.NewPrepared(regions, op, local, remote)
	if err != nil {
		return nil, err
	}
	count := min(uint64(c.Streams), max(1, p.Bytes/c.WholePart))
	cuts := make(Cuts, 0, count)
	for from := uint64(0); len(cuts) < int(count); {
		size := (p.Bytes - from) / (count - uint64(len(cuts)))
		if len(cuts)+1 < int(count) && size >= partAlign { // what is smaller has no sums, and stays in parts
			size -= size % partAlign
		}
		cut := Cut{bytes: size, local: local.Walk()}
		cut.local.Skip(from)
		cut.local.Limit(size)
		if err := cut.name(local, remote, from, c.Lend && op == fabric.Write); err != nil {
			p.Release()
			return nil, err
		}
		cuts = append(cuts, cut)
		from += size
	}
	p.Plan = cuts
	return p, nil
}

// name says where in the peer's memory the part is, and, where that is lent,
// where in local memory.
func (c *Cut) name(local, remote fabric.List, from uint64, lend bool) (err error) {
	if c.remote, err = remote.Slice(nil, from, c.bytes); err != nil {
		return err
	}
	if lend {
		if c.from, err = local.Slice(nil, from, c.bytes); err != nil {
			return err
		}
	}
	return c.write(fabric.List.AppendRepeating)
}

// write makes the lists as they are sent.
func (c *Cut) write(form func(fabric.List, []byte) []byte) error {
	if c.list = form(c.remote, nil); c.from != nil {
		c.source = form(c.from, nil)
	}
	if max(len(c.list), len(c.source)) > mrdn.MaxLinkFrame/2 {
		return fmt.Errorf("%w: %d pieces do not fit one request; split the list", fabric.ErrBusy, max(c.from.Pieces(), c.remote.Pieces()))
	}
	return nil
}

// plain is the cuts for a peer that reads no repeated spans.
func (c Cuts) plain() (Cuts, error) {
	c = slices.Clone(c)
	for i := range c {
		if err := c[i].write(fabric.List.AppendTo); err != nil {
			return nil, err
		}
	}
	return c, nil
}
