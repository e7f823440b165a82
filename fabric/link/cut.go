package link

import (
	"fmt"

	"meridian/fabric"
	"meridian/mrdn"
)

// Cuts is what Prepare works out once: how a request is cut into parts, each
// for a stream of its own.
type Cuts []Cut

// Cut is one part of a request.
type Cut struct {
	bytes uint64
	local fabric.Walk
	list  []byte // where in the peer's memory
}

// listBytes is how many bytes the lists of all cuts take on the wire.
func (c Cuts) listBytes() (total int) {
	for i := range c {
		total += len(c[i].list)
	}
	return total
}

// wholePart is the size below which cutting costs more than it gains.
const wholePart = 512 << 10

// Cutter says how requests are cut: for how many streams, and from how many
// bytes on a part is worth a stream of its own.
type Cutter struct {
	Streams   int
	WholePart uint64
}

// Prepare checks a request and cuts it for so many streams.
func Prepare(regions *fabric.Regions, streams int, op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	return Cutter{Streams: streams, WholePart: wholePart}.Prepare(regions, op, local, remote)
}

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
		cut := Cut{bytes: size, local: local.Walk()}
		cut.local.Skip(from)
		cut.local.Limit(size)
		slice, err := remote.Slice(nil, from, size)
		if err == nil {
			cut.list = slice.AppendTo(nil)
			if len(cut.list) > mrdn.MaxLinkFrame/2 {
				err = fmt.Errorf("%w: %d pieces do not fit one request; split the list", fabric.ErrBusy, remote.Pieces())
			}
		}
		if err != nil {
			p.Release()
			return nil, err
		}
		cuts = append(cuts, cut)
		from += size
	}
	p.Plan = cuts
	return p, nil
}
