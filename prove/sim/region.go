package sim

import (
	"context"
	"encoding/binary"

	"meridian/move/mem"
)

// A region's memory has two halves. Transfers take bytes from the first, whose
// contents depend on their place and change from version to version. They place
// bytes in the second, unit by unit, where each unit belongs to one transfer at a
// time; what was there before is different every time.
const (
	regionBytes = 4096
	sourceBytes = 2048
	unitBytes   = 64
	unitCount   = (regionBytes - sourceBytes) / unitBytes
)

// region is memory of one process, registered or once registered.
type region struct {
	process    *process
	arena      *mem.Arena
	key        uint64 // makes its contents its own
	id, epoch  uint64
	registered bool
	versions   [][]byte // of the first half; the last is what is there
	owners     [unitCount]*transfer
}

// register makes a region.
func (p *process) register() {
	w := p.world
	r := &region{process: p, arena: w.stage.arenas.take(), key: w.work.Uint64()}
	p.regions = append(p.regions, r)
	w.sections[r.arena.Section] = r
	r.rewrite()
	info, err := p.agent.Register(r.arena.Section, "")
	if err != nil {
		w.violate("memory can be registered", nil, "%v: %v", p, err)
		return
	}
	r.id, r.epoch, r.registered = info.ID, info.Epoch, true
	w.note(p, nil, "registers region %d", r.id)
	w.tally.Registered++
}

// rewrite gives the first half its next contents.
func (r *region) rewrite() {
	version := make([]byte, sourceBytes)
	fill(version, r.key+uint64(len(r.versions)))
	copy(r.arena.Bytes(0, sourceBytes), version)
	r.versions = append(r.versions, version)
}

// fill writes bytes that tell their place.
func fill(b []byte, key uint64) {
	for i := 0; i < len(b); i += 8 {
		key += 0x9E3779B97F4A7C15
		z := (key ^ key>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		binary.LittleEndian.PutUint64(b[i:], z^z>>31)
	}
}

// fence gives the region another epoch: from now on nothing of the old one may
// touch it.
func (r *region) fence() {
	p := r.process
	p.world.note(p, nil, "fences region %d", r.id)
	info, err := p.agent.Fence(context.Background(), r.id)
	if err != nil {
		p.world.violate("fences hold", nil, "%v cannot fence region %d: %v", p, r.id, err)
		return
	}
	p.world.tally.Fences++
	r.epoch = info.Epoch
	r.quiet()
}

// deregister takes the region away.
func (r *region) deregister() {
	p := r.process
	p.world.note(p, nil, "deregisters region %d", r.id)
	if err := p.agent.Deregister(context.Background(), r.id); err != nil {
		p.world.violate("fences hold", nil, "%v cannot deregister region %d: %v", p, r.id, err)
		return
	}
	p.world.tally.Deregistered++
	r.registered = false
	r.quiet()
}

// quiet is for what was fenced: what its units hold now, they keep.
func (r *region) quiet() {
	for _, t := range r.owners {
		if t != nil && t.doubtful() {
			t.quiet(r)
		}
	}
}

// free counts units that no transfer has.
func (r *region) free() (n int) {
	for _, t := range r.owners {
		if t == nil {
			n++
		}
	}
	return n
}

func (r *region) unit(i int) []byte {
	return r.arena.Bytes(sourceBytes+uint64(i)*unitBytes, unitBytes)
}

// discard gives the memory to the next world.
func (r *region) discard() {
	delete(r.process.world.sections, r.arena.Section)
	r.process.world.stage.arenas.give(r.arena)
}

// arenas keeps memory from one region to the next: mapping it is slow.
type arenas []*mem.Arena

func (a *arenas) take() *mem.Arena {
	if n := len(*a); n > 0 {
		last := (*a)[n-1]
		*a = (*a)[:n-1]
		return last
	}
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "sim", SizeBytes: regionBytes, NUMANode: -1})
	if err != nil {
		panic(err)
	}
	return arena
}

// give takes memory back. What is still referred to is left alone.
func (a *arenas) give(arena *mem.Arena) {
	if arena.References() == 0 {
		*a = append(*a, arena)
	}
}

// close lets all memory go.
func (a *arenas) close() {
	for _, arena := range *a {
		_ = arena.Close(context.Background())
	}
	*a = nil
}
