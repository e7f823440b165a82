package fabrictest

import (
	"meridian/move/fabric"
)

// piece is some contiguous bytes of a memory.
type piece struct {
	memory         *memory
	offset, length uint64
}

// pieces say which bytes, in the order in which they are moved. They are the
// suite's own, naive form of a fabric.List.
type pieces []piece

func (p pieces) bytes() (total uint64) {
	for _, x := range p {
		total += x.length
	}
	return total
}

// list is what the fabric is given.
func (p pieces) list(s *fixture) (l fabric.List) {
	s.Helper()
	for _, x := range p {
		region := x.memory.region
		if n := len(l); n == 0 || l[n-1].Region != region.ID {
			l = append(l, fabric.Part{Region: region.ID, Epoch: region.Epoch})
		}
		if err := l[len(l)-1].Spans.Add(x.offset, x.length); err != nil {
			s.Fatal(err)
		}
	}
	return l
}

// gather returns what the images say the pieces hold.
func (p pieces) gather() []byte {
	data := make([]byte, 0, p.bytes())
	for _, x := range p {
		data = append(data, x.memory.image[x.offset:x.offset+x.length]...)
	}
	return data
}

// scatter changes the images.
func (p pieces) scatter(data []byte) {
	for _, x := range p {
		data = data[copy(x.memory.image[x.offset:x.offset+x.length], data):]
	}
}

// hold reads what the pieces really hold now.
func (p pieces) hold() []byte {
	data := make([]byte, 0, p.bytes())
	for _, x := range p {
		data = append(data, x.memory.holds(x.offset, x.length)...)
	}
	return data
}

// fence makes sure that nothing posted before touches the pieces' memory.
func (p pieces) fence() {
	fenced := make(map[*memory]bool)
	for _, x := range p {
		if m := x.memory; !fenced[m] && m.registered && !m.side.closed {
			fenced[m] = true
			m.fence()
		}
	}
}

// shape is how a side of a transfer is cut up.
type shape struct {
	longest uint64 // of a piece
	even    bool   // all pieces of that length, at equal distances
	dense   bool   // no gaps
}

func (s *fixture) anyShape() shape {
	longest := []uint64{1, 7, 64, 300, 4096, 9000, 200_000}
	return shape{
		longest: longest[s.random.IntN(len(longest))],
		even:    s.random.IntN(3) == 0, dense: s.random.IntN(4) == 0,
	}
}

// cut spreads total bytes over memories without covering a byte twice. Each
// memory must have room for twice the total.
func (s *fixture) cut(total uint64, over []*memory, as shape) (all pieces) {
	lengths := s.lengths(total, as)
	gaps := uint64(0)
	if !as.dense && len(lengths) > 0 {
		gaps = min(100, (uint64(len(over[0].image))-total)/uint64(len(lengths)))
	}
	used := make(map[*memory]uint64, len(over))
	for len(lengths) > 0 {
		m := over[s.random.IntN(len(over))]
		group := len(lengths)
		if len(over) > 1 {
			group = min(group, 1+s.random.IntN(1+len(lengths)/8)+len(lengths)/64)
		}
		start := len(all)
		for _, length := range lengths[:group] {
			gap := gaps
			if gaps > 0 && !as.even {
				gap = s.random.Uint64N(gaps + 1)
			}
			all = append(all, piece{m, used[m] + gap, length})
			used[m] += gap + length
		}
		if !as.even {
			s.random.Shuffle(group, func(i, j int) { all[start+i], all[start+j] = all[start+j], all[start+i] })
		}
		lengths = lengths[group:]
	}
	return all
}

func (s *fixture) lengths(total uint64, as shape) (all []uint64) {
	for total > 0 {
		length := as.longest
		if !as.even {
			length = 1 + s.random.Uint64N(as.longest)
		}
		length = min(length, total)
		all = append(all, length)
		total -= length
	}
	return all
}
