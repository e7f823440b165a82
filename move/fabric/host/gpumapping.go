package host

import (
	"context"
	"sync"

	"meridian/move/cuda"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// gpuMapping is how GPUs see a stretch of memory: a loan, or host memory of our own. What
// is done for that stays until close.
type gpuMapping struct {
	gpu     *gpu
	section *mem.Section // nil for a loan of GPU memory
	lent    vram.Lent    // …which is opened so
	loan    bool         // the section is the loan's own, and closed with it
	held    bool         // ours is referenced until end; the gpu's mu protects it

	mu    sync.Mutex // protects the rest, also while a GPU is asked
	views map[*cuda.Device]deviceView
}

// deviceView is the same as one device sees it.
type deviceView struct {
	at    cuda.Pointer
	seen  bool // else its bytes go through pinned memory
	close func() error
	// section is the import of a loan of GPU memory.
	section *mem.Section
}

// maxPinned bounds what is pinned of host memory for a GPU, which takes a second for
// some gigabytes.
const maxPinned = 64 << 30

// device is the GPU that a loan lies on, and nil for host memory.
func (r *gpuMapping) device() (*cuda.Device, error) {
	if r.section != nil {
		return nil, nil
	}
	section, err := r.imported(nil)
	if err != nil {
		return nil, err
	}
	return vram.Of(section).Device, nil
}

// imported opens a loan of GPU memory for a device; nil is the one that it lies on.
func (r *gpuMapping) imported(on *cuda.Device) (*mem.Section, error) {
	lent := r.lent
	if on != nil && on.UUID != lent.UUID {
		lent.On = on
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for d, v := range r.views {
		if d == on || on == nil && d.UUID == lent.UUID {
			return v.section, nil
		}
	}
	section, err := r.gpu.devices.Import(lent)
	if err != nil {
		return nil, err
	}
	m := vram.Of(section)
	r.keep(m.Device, deviceView{at: m.At, seen: true, section: section, close: func() error { return section.Close(context.Background()) }})
	return section, nil
}

// from is where a device sees the memory.
func (r *gpuMapping) from(d *cuda.Device) (deviceView, error) {
	if r.section == nil {
		if _, err := r.imported(d); err != nil {
			return deviceView{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, known := r.views[d]; known {
		return v, nil
	}
	v := deviceView{close: func() error { return nil }}
	if s := r.section; s.Mapped() && s.Size() <= maxPinned {
		if p, err := d.Register(s.Bytes(0, s.Size()), !s.Writable()); err == nil {
			v = deviceView{at: p.At(), seen: true, close: p.Close}
		} else if cuda.Lost(err) {
			return deviceView{}, err
		}
	}
	r.keep(d, v)
	return v, nil
}

func (r *gpuMapping) keep(d *cuda.Device, v deviceView) {
	if r.views == nil {
		r.views = make(map[*cuda.Device]deviceView)
	}
	r.views[d] = v
}

// close lets the memory go, in a copier of the GPU's if a GPU has seen it: no lock may be
// held while a GPU is asked. Nothing uses it any more.
func (r *gpuMapping) close() {
	r.mu.Lock()
	seen := len(r.views) > 0
	r.mu.Unlock()
	if seen {
		r.gpu.copiers.do(&closing{r, make(chan struct{})}, 1, false)
		return
	}
	r.end()
}

func (r *gpuMapping) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.views {
		if err := v.close(); err != nil {
			r.gpu.logger.Warn("memory that a GPU has seen was not let go", "error", err)
		}
	}
	r.views = nil
	switch {
	case r.loan && r.section != nil:
		_ = r.section.Close(context.Background())
	case r.held:
		r.section.Release()
	}
}

// closing is the end of a reach, as a task.
type closing struct {
	*gpuMapping
	over chan struct{}
}

func (c *closing) work(copier) bool { c.retire(1); return false }
func (c *closing) fail(error)       {}
func (c *closing) retire(int)       { c.end(); close(c.over) }
