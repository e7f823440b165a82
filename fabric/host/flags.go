package host

import (
	"fmt"
	"os"
	"sync"

	"meridian/fabric"
	"meridian/kv"
	"meridian/mem"
	"meridian/mrdn"
)

// flags are those of the regions that are registered.
type flags struct {
	board *board

	mu       sync.Mutex // protects byRegion, and keeps it in step with the table
	byRegion map[uint64]flag
}

func (t *flags) register(regions *fabric.Regions, r fabric.Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	raised, err := t.board.raise()
	if err != nil {
		return err
	}
	if err := regions.Add(r); err != nil {
		t.board.lower(raised)
		return err
	}
	t.byRegion[r.ID] = raised
	return nil
}

func (t *flags) deregister(regions *fabric.Regions, id uint64) (down flag, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := regions.Remove(id); err != nil {
		return flag{}, err
	}
	down = t.byRegion[id]
	delete(t.byRegion, id)
	t.board.lower(down)
	return down, nil
}

func (t *flags) lowerAll() (down []flag) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, f := range t.byRegion {
		delete(t.byRegion, id)
		t.board.lower(f)
		down = append(down, f)
	}
	return down
}

func (t *flags) find(id uint64) (flag, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, known := t.byRegion[id]
	if !known {
		return flag{}, fmt.Errorf("%w: %d", fabric.ErrUnknownRegion, id)
	}
	return f, nil
}

// lender is what was lent on a connection. The connection's lock protects it.
type lender struct {
	flags *flags
	lent  map[uint64]flag
}

func newLender(f *flags) lender { return lender{flags: f, lent: make(map[uint64]flag)} }

// parcel is frames and the descriptors that go with them.
type parcel struct {
	frames []byte
	gifts  []gift
}

func (p *parcel) add(frame []byte, file *os.File) {
	p.gifts = append(p.gifts, gift{len(p.frames), file})
	p.frames = append(p.frames, frame...)
}

// lend adds a region to a parcel. The caller holds a reference on the section.
func (l *lender) lend(p *parcel, name fabric.Part, grant kv.ID, section *mem.Section) error {
	f, err := l.flags.find(name.Region)
	if err != nil {
		return err
	}
	file, err := section.Lend()
	if err != nil {
		return fmt.Errorf("%w: region %d: %w", fabric.ErrUnsupported, name.Region, err)
	}
	l.lent[name.Region] = f
	p.add(mrdn.Lend{Region: name.Region, Epoch: name.Epoch, Grant: grant, Cell: f.cell, Turn: f.turn}.Append(nil), file)
	return nil
}

// holds reports whether a region was lent as it is registered now.
func (l *lender) holds(region uint64) bool {
	f, err := l.flags.find(region)
	return err == nil && l.lent[region] == f
}

// recall is the frame that asks for a region back, if it was lent.
func (l *lender) recall(region uint64) []byte {
	f, was := l.lent[region]
	if !was {
		return nil
	}
	delete(l.lent, region)
	return mrdn.Recall{Region: region, Turn: f.turn}.Append(nil)
}
