package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"meridian/move/fabric"
	"meridian/move/mem"
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

func byID(x, y RegionInfo) int { return cmp.Compare(x.ID, y.ID) }

// region is memory registered here.
type region struct {
	RegionInfo // changes under changing and the agent's mu, both
	section    *mem.Section

	// changing is held while the fabrics are told of a change, so that a fence
	// cannot put back what Deregister took away. It comes before the agent's mu.
	changing sync.Mutex
}

// Register makes a section reachable for transfers, on every fabric that can
// reach its kind. The section stays the caller's, who closes it after
// Deregister.
func (a *Agent) Register(section *mem.Section, info string) (RegionInfo, error) {
	if len(info) > maxInfo {
		return RegionInfo{}, fmt.Errorf("agent: info of %d bytes, at most %d", len(info), maxInfo)
	}
	r, err := a.addRegion(section, info)
	if err != nil {
		return RegionInfo{}, err
	}
	defer r.changing.Unlock()
	fabrics, err := a.registerOn(r, func(f fabric.Fabric) bool { return slices.Contains(f.Capabilities().Kinds, section.Kind()) })
	if err == nil && len(fabrics) == 0 {
		err = fmt.Errorf("%w: no fabric of this agent reaches %v memory", fabric.ErrUnsupported, section.Kind())
	}
	if err != nil {
		return RegionInfo{}, errors.Join(err, a.unregister(context.Background(), r.ID, fabrics), a.removeRegion(r.ID))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Fabrics = fabrics
	return r.RegionInfo, nil
}

// addRegion puts a region on the list, changing and not yet reached by a fabric.
func (a *Agent) addRegion(section *mem.Section, info string) (*region, error) {
	r := &region{section: section, RegionInfo: RegionInfo{
		Epoch: 1, Kind: section.Kind(), Device: section.Device(), Address: section.Base(), Length: section.Size(), Info: info,
	}}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fabric.ErrClosed
	}
	if len(a.regions) >= maxRegions {
		return nil, fmt.Errorf("%w: %d regions are registered, which is all that a peer can be told of", fabric.ErrBusy, maxRegions)
	}
	for _, other := range a.regions {
		if other.Device == r.Device && other.Address < r.Address+r.Length && r.Address < other.Address+other.Length {
			return nil, fmt.Errorf("agent: [%#x,+%d) on device %d overlaps region %d, and descriptors could not tell them apart; "+
				"give each file and each lent process a device of its own", r.Address, r.Length, r.Device, other.ID)
		}
	}
	a.nextID++
	r.ID = a.nextID
	r.changing.Lock()
	a.regions[r.ID] = r
	return r, nil
}

// registerOn tells the fabrics that match of a region, and returns their names.
func (a *Agent) registerOn(r *region, match func(fabric.Fabric) bool) (names []string, err error) {
	for _, f := range a.fabrics {
		if !match(f) {
			continue
		}
		if err := f.Register(fabric.Region{ID: r.ID, Epoch: r.Epoch, Section: r.section}); err != nil {
			return names, err
		}
		names = append(names, f.Name())
	}
	return names, nil
}

// removeRegion takes a region off the list.
func (a *Agent) removeRegion(id uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.regions[id]; !known {
		return fmt.Errorf("%w: %d", fabric.ErrUnknownRegion, id)
	}
	delete(a.regions, id)
	return nil
}

// lockRegion finds a region and holds it for a change.
func (a *Agent) lockRegion(id uint64) (*region, error) {
	unknown := fmt.Errorf("%w: %d", fabric.ErrUnknownRegion, id)
	a.mu.Lock()
	r := a.regions[id]
	a.mu.Unlock()
	if r == nil {
		return nil, unknown
	}
	r.changing.Lock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.regions[id] != r { // it was removed while we waited
		r.changing.Unlock()
		return nil, unknown
	}
	return r, nil
}

// Deregister fences a region: when it returns nil, nothing touches its memory
// any more, whichever peer asked for it. After an error the region is gone too, and
// only closing its section tells when its memory is quiet.
func (a *Agent) Deregister(ctx context.Context, id uint64) error {
	r, err := a.lockRegion(id)
	if err != nil {
		return err
	}
	defer r.changing.Unlock()
	if err := a.removeRegion(id); err != nil {
		return err
	}
	a.audit.note(slog.LevelInfo, "fenced", "region", id, "deregistered", true)
	return a.unregister(ctx, id, r.Fabrics)
}

func (a *Agent) unregister(ctx context.Context, id uint64, fabrics []string) error {
	var errs []error
	for _, f := range a.fabrics {
		if slices.Contains(fabrics, f.Name()) {
			errs = append(errs, f.Deregister(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// Fence gives a region another epoch: whatever was prepared for the old one is
// refused from now on, and nothing of it is in flight when Fence returns nil.
// After an error the region is only fit to be deregistered.
func (a *Agent) Fence(ctx context.Context, id uint64) (RegionInfo, error) {
	r, err := a.lockRegion(id)
	if err != nil {
		return RegionInfo{}, err
	}
	defer r.changing.Unlock()
	if err := a.unregister(ctx, id, r.Fabrics); err != nil {
		return RegionInfo{}, err
	}
	a.mu.Lock()
	r.Epoch++
	info := r.RegionInfo
	a.mu.Unlock()
	if _, err := a.registerOn(r, func(f fabric.Fabric) bool { return slices.Contains(info.Fabrics, f.Name()) }); err != nil {
		return RegionInfo{}, err
	}
	a.audit.note(slog.LevelInfo, "fenced", "region", id, "epoch", info.Epoch)
	return info, nil
}

// Regions lists what is registered, by id.
func (a *Agent) Regions() []RegionInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	infos := make([]RegionInfo, 0, len(a.regions))
	for _, r := range a.regions {
		if len(r.Fabrics) > 0 { // else it is still being registered
			infos = append(infos, r.RegionInfo)
		}
	}
	slices.SortFunc(infos, byID)
	return infos
}
