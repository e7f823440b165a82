package sim

import (
	"bytes"
	"fmt"

	"meridian/move/fabric"
)

// checkBytes compares the destination with what may be there.
func (t *transfer) checkBytes() {
	w := t.world()
	for i := range t.units {
		u := &t.units[i]
		if at := t.foreign(u); at >= 0 {
			w.violate("only what was listed moves", t, "byte %d of unit %d of region %d of %v changed, and %v does not name it",
				at, u.index, u.region.id, u.region.process, t)
		}
		if t.state == fabric.NotSubmitted && !t.wasDone && !t.wasInDoubt && !bytes.Equal(u.region.unit(u.index), u.before) {
			w.violate("not submitted means that nothing happened", t, "unit %d of region %d of %v changed", u.index, u.region.id, u.region.process)
		}
	}
	switch at, have := t.compare(t.state != fabric.Done); {
	case at < 0 || t.state == fabric.NotSubmitted || (t.corrupted || t.late) && t.state == fabric.InDoubt:
	case t.state == fabric.Done:
		w.violate("done means that the bytes are there", t, "byte %d of %d of %v is not what the source held%s", at, total(t.source), t, have)
	default:
		w.violate("what is in doubt is old or new", t, "byte %d of %d of %v is neither%s", at, total(t.source), t, have)
	}
}

// foreign finds a byte of a unit that is on no list of t and has changed.
func (t *transfer) foreign(u *unit) int {
	now := u.region.unit(u.index)
	if len(u.before) == 0 || bytes.Equal(now, u.before) {
		return -1
	}
	base := sourceBytes + uint64(u.index)*unitBytes
	for i := range now {
		if now[i] != u.before[i] && find(t.destination, u.region, fabric.Cut{Offset: base + uint64(i), Length: 1}) == nil {
			return i
		}
	}
	return -1
}

// compare finds the first byte of the destination that is not what the source
// held while the transfer ran, nor, where old is allowed, what was there before.
func (t *transfer) compare(old bool) (at int, have string) {
	if t.mutilated || t.forbidden != nil {
		return -1, ""
	}
	from, to := 0, 0
	var fromAt, toAt uint64
	for n := 0; to < len(t.destination); {
		s, d := &t.source[from], &t.destination[to]
		length := min(s.length-fromAt, d.length-toAt)
		if bad := t.compareCut(s, d, s.offset+fromAt, d.offset+toAt, length, old); bad >= 0 {
			return n + bad, fmt.Sprintf(" (region %d of %v, byte %d)", d.region.id, d.region.process, d.offset+toAt+uint64(bad))
		}
		n += int(length)
		if fromAt += length; fromAt == s.length {
			from, fromAt = from+1, 0
		}
		if toAt += length; toAt == d.length {
			to, toAt = to+1, 0
		}
	}
	return -1, ""
}

func (t *transfer) compareCut(s, d *piece, from, to, length uint64, old bool) int {
	now := d.region.arena.Bytes(to, length)
	versions := s.region.versions[s.first:]
	if t.over {
		versions = versions[:s.last+1-s.first]
	}
	if bytes.Equal(now, versions[len(versions)-1][from:from+length]) {
		return -1
	}
	for i := range now {
		held := old && now[i] == t.beforeAt(d.region, to+uint64(i))
		for _, v := range versions {
			held = held || now[i] == v[from+uint64(i)]
		}
		if !held {
			return i
		}
	}
	return -1
}

func (t *transfer) beforeAt(r *region, offset uint64) byte {
	index := int((offset - sourceBytes) / unitBytes)
	for i := range t.units {
		if u := &t.units[i]; u.region == r && u.index == index {
			return u.before[(offset-sourceBytes)%unitBytes]
		}
	}
	return 0
}

// checkKept demands that a destination is as it was when it became final.
func (t *transfer) checkKept() {
	for i := range t.units {
		if u := &t.units[i]; !bytes.Equal(u.kept, u.region.unit(u.index)) {
			t.world().violate("an end is an end", t, "%v ended as %v, and unit %d of region %d of %v changed after that",
				t, t.state, u.index, u.region.id, u.region.process)
		}
	}
}
