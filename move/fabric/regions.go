package fabric

import (
	"errors"
	"fmt"
	"sync"

	"meridian/move/mem"
)

// Regions is the table of what a fabric may touch. Every fabric keeps one and
// asks it before a byte moves.
type Regions struct {
	mu   sync.RWMutex // protects byID
	byID map[uint64]Region
}

// Add registers a region.
func (t *Regions) Add(r Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.byID[r.ID]; taken {
		return fmt.Errorf("fabric: region %d is registered already", r.ID)
	}
	if t.byID == nil {
		t.byID = make(map[uint64]Region)
	}
	t.byID[r.ID] = r
	return nil
}

// Remove makes a region unknown. Lists that were bound before still hold its
// memory until they are released.
func (t *Regions) Remove(id uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.byID[id]; !known {
		return fmt.Errorf("%w: %d", ErrUnknownRegion, id)
	}
	delete(t.byID, id)
	return nil
}

// Bound is a list whose regions were found, checked and referenced.
type Bound struct {
	List
	sections []*mem.Section

	mu    sync.Mutex // protects the rest
	holds int
	idle  []func()
}

// Hold is for work on the memory that no lock can stop, as a kernel on a GPU: who
// does it holds the memory from before it begins until Drop, when it has ended.
func (b *Bound) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds++
}

// Drop is the other half of Hold.
func (b *Bound) Drop() {
	b.mu.Lock()
	b.holds--
	var idle []func()
	if b.holds == 0 {
		idle, b.idle = b.idle, nil
	}
	b.mu.Unlock()
	for _, f := range idle {
		f()
	}
}

// WhenIdle calls f once the memory is not held: at once, or from the last Drop.
func (b *Bound) WhenIdle(f func()) {
	b.mu.Lock()
	if b.holds > 0 {
		b.idle = append(b.idle, f)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	f()
}

// Bind checks every part of l against the table: the region is known, its
// epoch is the one named, the spans lie within. It takes a reference on each
// section; Release gives them back.
func (t *Regions) Bind(l List) (*Bound, error) { return t.BindAs(l, false) }

// BindAs is Bind for what may be a destination, which must also be writable.
func (t *Regions) BindAs(l List, destination bool) (*Bound, error) {
	b := &Bound{List: l, sections: make([]*mem.Section, 0, len(l))}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := range l {
		if err := t.bindPart(b, &l[i], destination); err != nil {
			b.Release()
			return nil, err
		}
	}
	return b, nil
}

func (t *Regions) bindPart(b *Bound, p *Part, destination bool) error {
	region, err := t.find(p)
	if err != nil {
		return err
	}
	if destination && !region.Section.Writable() {
		return fmt.Errorf("region %d cannot be a destination: %w; its owner must map it with the right to write", p.Region, mem.ErrReadOnly)
	}
	if err := p.Spans.Check(region.Section.Size()); err != nil {
		return fmt.Errorf("region %d: %w", p.Region, err)
	}
	if err := region.Section.Acquire(); err != nil {
		return fmt.Errorf("region %d: %w", p.Region, err)
	}
	b.sections = append(b.sections, region.Section)
	return nil
}

// Current reports whether every part of b still names the region it was bound
// to. What was prepared before a fence must not run after it, so a fabric asks
// this once Deregister can find a transfer and before it touches memory.
func (t *Regions) Current(b *Bound) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := range b.List {
		region, err := t.find(&b.List[i])
		if err != nil {
			return err
		}
		if region.Section != b.sections[i] {
			return fmt.Errorf("%w: region %d was registered anew under the same one", ErrStaleEpoch, region.ID)
		}
	}
	return nil
}

func (t *Regions) find(p *Part) (Region, error) {
	region, known := t.byID[p.Region]
	if !known {
		return Region{}, fmt.Errorf("%w: %d", ErrUnknownRegion, p.Region)
	}
	if region.Epoch != p.Epoch {
		return Region{}, fmt.Errorf("%w: region %d is at epoch %d, the request names %d", ErrStaleEpoch, p.Region, region.Epoch, p.Epoch)
	}
	return region, nil
}

// Section is the memory of part i.
func (b *Bound) Section(i int) *mem.Section { return b.sections[i] }

// Release gives the references back. It may be called again.
func (b *Bound) Release() {
	for _, s := range b.sections {
		s.Release()
	}
	b.sections = nil
}

// Prepared is a request that was checked once and can be posted many times. It
// holds its local memory until Release.
type Prepared struct {
	Op     Op
	Local  *Bound
	Remote List
	Bytes  uint64
	// Plan is the fabric's own: what it worked out once for all posts.
	Plan any

	mu       sync.Mutex // protects posted, released
	posted   int
	released bool
}

// NewPrepared does the checks that Link.Prepare promises.
func NewPrepared(regions *Regions, op Op, local, remote List) (*Prepared, error) {
	if op != Read && op != Write {
		return nil, fmt.Errorf("%w: operation %d", ErrUnsupported, op)
	}
	if err := errors.Join(local.check(), remote.check()); err != nil {
		return nil, err
	}
	if local.Bytes() != remote.Bytes() {
		return nil, fmt.Errorf("%w: local %d bytes, remote %d", ErrLengths, local.Bytes(), remote.Bytes())
	}
	destination := local
	if op == Write {
		destination = remote
	}
	if err := destination.checkOverlap(); err != nil {
		return nil, err
	}
	bound, err := regions.BindAs(local, op == Read)
	if err != nil {
		return nil, err
	}
	return &Prepared{Op: op, Local: bound, Remote: remote, Bytes: local.Bytes()}, nil
}

// use keeps the memory until done is called; it fails after Release.
func (p *Prepared) use() (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return nil, ErrReleased
	}
	p.posted++
	return p.unuse, nil
}

func (p *Prepared) unuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.posted--; p.posted == 0 && p.released {
		p.Local.Release()
	}
}

// Release gives the local memory back, as soon as the last post has ended. It
// may be called again.
func (p *Prepared) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return
	}
	p.released = true
	if p.posted == 0 {
		p.Local.Release()
	}
}
