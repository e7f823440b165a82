package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"meridian/fabric"
	"meridian/mem"
)

// RegionInfo is what a peer may know of registered memory.
type RegionInfo struct {
	ID, Epoch uint64
	Kind      mem.Kind
	Device    uint32
	// Address of the first byte, as the owner sees it; descriptors name
	// addresses.
	Address, Length uint64
	// Info is the owner's own, such as a layer's name.
	Info string
	// Fabrics that can reach it.
	Fabrics []string
}

func (i RegionInfo) covers(device uint32, address, length uint64) bool {
	return i.Device == device && address >= i.Address && length <= i.Length && address-i.Address <= i.Length-length
}

// region is memory registered here.
type region struct {
	RegionInfo
	section *mem.Section
}

// Register makes a section reachable for transfers, on every fabric that can
// reach its kind. The section stays the caller's, who closes it after
// Deregister.
func (a *Agent) Register(section *mem.Section, info string) (RegionInfo, error) {
	if len(info) > maxInfo {
		return RegionInfo{}, fmt.Errorf("agent: info of %d bytes, at most %d", len(info), maxInfo)
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return RegionInfo{}, fabric.ErrClosed
	}
	a.nextID++
	r := &region{section: section, RegionInfo: RegionInfo{
		ID: a.nextID, Epoch: 1, Kind: section.Kind(), Device: section.Device(), Address: section.Base(), Length: section.Size(), Info: info,
	}}
	for _, other := range a.regions {
		if other.Kind == r.Kind && other.Device == r.Device && other.Address < r.Address+r.Length && r.Address < other.Address+other.Length {
			a.mu.Unlock()
			return RegionInfo{}, fmt.Errorf("agent: [%#x,+%d) on device %d overlaps region %d; give each file section a device of its own",
				r.Address, r.Length, r.Device, other.ID)
		}
	}
	a.mu.Unlock()
	for _, f := range a.fabrics {
		if !slices.Contains(f.Capabilities().Kinds, r.Kind) {
			continue
		}
		if err := f.Register(fabric.Region{ID: r.ID, Epoch: r.Epoch, Section: section}); err != nil {
			return RegionInfo{}, errors.Join(err, a.unregister(context.Background(), r))
		}
		r.Fabrics = append(r.Fabrics, f.Name())
	}
	if len(r.Fabrics) == 0 {
		return RegionInfo{}, fmt.Errorf("%w: no fabric of this agent reaches %v memory", fabric.ErrUnsupported, r.Kind)
	}
	a.mu.Lock()
	a.regions[r.ID] = r
	a.mu.Unlock()
	return r.RegionInfo, nil
}

// Deregister fences a region: when it returns, nothing touches its memory any
// more, whoever asked for it.
func (a *Agent) Deregister(ctx context.Context, id uint64) error {
	a.mu.Lock()
	r, known := a.regions[id]
	delete(a.regions, id)
	a.mu.Unlock()
	if !known {
		return fmt.Errorf("%w: %d", fabric.ErrUnknownRegion, id)
	}
	return a.unregister(ctx, r)
}

func (a *Agent) unregister(ctx context.Context, r *region) error {
	var errs []error
	for _, f := range a.fabrics {
		if slices.Contains(r.Fabrics, f.Name()) {
			errs = append(errs, f.Deregister(ctx, r.ID))
		}
	}
	return errors.Join(errs...)
}

// Fence gives a region another epoch: whatever was prepared for the old one is
// refused from now on, and nothing of it is in flight when Fence returns.
func (a *Agent) Fence(ctx context.Context, id uint64) (RegionInfo, error) {
	a.mu.Lock()
	r, known := a.regions[id]
	a.mu.Unlock()
	if !known {
		return RegionInfo{}, fmt.Errorf("%w: %d", fabric.ErrUnknownRegion, id)
	}
	if err := a.unregister(ctx, r); err != nil {
		return RegionInfo{}, err
	}
	a.mu.Lock()
	r.Epoch++
	info := r.RegionInfo
	a.mu.Unlock()
	for _, f := range a.fabrics {
		if slices.Contains(info.Fabrics, f.Name()) {
			if err := f.Register(fabric.Region{ID: id, Epoch: info.Epoch, Section: r.section}); err != nil {
				return RegionInfo{}, err
			}
		}
	}
	return info, nil
}

// Regions lists what is registered, by id.
func (a *Agent) Regions() []RegionInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	infos := make([]RegionInfo, 0, len(a.regions))
	for _, r := range a.regions {
		infos = append(infos, r.RegionInfo)
	}
	slices.SortFunc(infos, func(x, y RegionInfo) int { return int(int64(x.ID) - int64(y.ID)) })
	return infos
}
