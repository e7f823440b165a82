package host

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/move/mrdn"
)

// borrowed is what one peer has lent on one link: its flag page, and regions
// mapped to be read.
type borrowed struct {
	lender int       // the peer's process
	gpu    *gpu      // nil without GPUs
	link   *peerLink // whose it is, at the posting side
	// hopeless is when the peer was given up: it had stopped in the middle of a piece;
	// nil when there is hope.
	hopeless atomic.Pointer[time.Time]

	mu     sync.Mutex // protects the rest
	page   *peerPage
	loans  map[uint64]*loan // by region
	users  int              // of the page
	closed bool
}

// loan is a region of the peer's.
type loan struct {
	region, epoch, serial uint64
	sizeBytes             uint64
	section               *mem.Section // nil for memory of a GPU, which is opened when it is needed
	unreached             error        // why there is none
	far                   *gpuMapping  // how GPUs see it
	users                 int          // protected by borrowed.mu
	returned              bool
}

// maxLoans bounds what a peer can make this agent map.
const maxLoans = 4096

func (b *borrowed) putPage(m mrdn.FlagPage, fd int) error {
	page, err := newPeerPage(fd, m.Copiers)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.page != nil || b.closed {
		_ = page.close()
		return fmt.Errorf("%w: a second flag page", mrdn.ErrLinkFrame)
	}
	b.page, b.loans = page, make(map[uint64]*loan)
	return nil
}

// put maps a region that was lent.
func (b *borrowed) put(m mrdn.Lend, fd int) error {
	l := &loan{region: m.Region, epoch: m.Epoch, serial: m.Serial}
	if m.SizeBytes > 0 {
		l.section, l.unreached = b.openLent(m, fd)
	} else if arena, err := mem.MapArena(fd, false); err != nil {
		l.unreached = err
	} else {
		l.section = arena.Section
	}
	if l.section != nil {
		l.sizeBytes, l.far = l.section.Size(), &gpuMapping{section: l.section, gpu: b.gpu, loan: true}
	}
	return b.keep(l)
}

// putGPU takes the loan of a region that lies in the memory of a GPU. Nothing is asked
// of the GPU yet: that may take as long as it likes.
func (b *borrowed) putGPU(m mrdn.LendGPU) error {
	l := &loan{region: m.Region, epoch: m.Epoch, serial: m.Serial, sizeBytes: m.SizeBytes}
	if b.gpu == nil {
		l.unreached = cuda.ErrUnsupported
	} else {
		l.far = &gpuMapping{gpu: b.gpu, loan: true, lent: vram.Lent{UUID: m.UUID, Handle: m.Handle, Offset: m.Offset, SizeBytes: m.SizeBytes}}
	}
	return b.keep(l)
}

// keep puts a loan in the place of an older one of the region.
func (b *borrowed) keep(l *loan) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.loans[l.region]; old != nil {
		b.giveBackLocked(old)
	}
	var err error
	switch {
	case b.closed || b.page == nil:
		err = fmt.Errorf("%w: a loan before the flag page", mrdn.ErrLinkFrame)
	case len(b.loans) >= maxLoans:
		err = fmt.Errorf("%w: the peer lends %d regions already", fabric.ErrBusy, maxLoans)
	}
	if err != nil {
		l.close()
		return err
	}
	b.loans[l.region] = l
	return l.unreached
}

// openLent opens memory in an engine's process. Another process does not lend
// this one its own memory: that would be a way to have its keys copied.
func (b *borrowed) openLent(m mrdn.Lend, pidfd int) (*mem.Section, error) {
	section, err := mem.OpenLent(pidfd, m.Address, m.SizeBytes)
	if err == nil && section.PID() == os.Getpid() && b.lender != os.Getpid() {
		_ = section.Close(context.Background())
		return nil, fmt.Errorf("%w: it is this agent's own memory", fabric.ErrRefused)
	}
	return section, err
}

// close lets the memory go; what GPUs have of it first, and in their time.
func (l *loan) close() {
	switch {
	case l.far != nil:
		l.far.close()
	case l.section != nil:
		_ = l.section.Close(context.Background())
	}
}

// take finds the loan of every part of a list, for use until release, with the
// page on which the flag of the whole flies.
func (b *borrowed) take(l fabric.List, f link.Flag) ([]*loan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.page == nil || !b.page.fits(f) {
		return nil, fmt.Errorf("%w: a source without a flag", fabric.ErrRefused)
	}
	loans := make([]*loan, len(l))
	for i := range l {
		held := b.loans[l[i].Region]
		if held == nil || held.epoch != l[i].Epoch {
			return nil, fmt.Errorf("%w: the source, region %d in epoch %d, is not lent", fabric.ErrRefused, l[i].Region, l[i].Epoch)
		}
		if held.unreached != nil {
			return nil, fmt.Errorf("%w: the source, region %d, cannot be read from here: %w", fabric.ErrRefused, l[i].Region, held.unreached)
		}
		if err := l[i].Spans.Check(held.sizeBytes); err != nil {
			return nil, fmt.Errorf("region %d: %w", l[i].Region, err)
		}
		loans[i] = held
	}
	for _, held := range loans {
		held.users++
	}
	b.users++
	return loans, nil
}

func (b *borrowed) release(loans []*loan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range loans {
		if l.users--; l.users == 0 && l.returned {
			l.close()
		}
	}
	b.unuseLocked()
}

func (b *borrowed) unuseLocked() {
	if b.users--; b.users == 0 && b.closed {
		_ = b.page.close()
	}
}

// giveBackLocked unmaps a loan, once no copier uses it.
func (b *borrowed) giveBackLocked(l *loan) {
	delete(b.loans, l.region)
	l.returned = true
	if l.users == 0 {
		l.close()
	}
}

// recall gives a region back.
func (b *borrowed) recall(m mrdn.Recall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.loans[m.Region]; l != nil && l.serial == m.Serial {
		b.giveBackLocked(l)
	}
}

// stoppedPeer is how long settle waits for a peer that does not run: longer than a launch
// takes that one has begun whose machine has little time for it.
const stoppedPeer = 2 * time.Second

// settle waits until the peer has ended the pieces that it was taking under
// flags of ours that are down. That is some microseconds, and nothing rests on it
// but what an InDoubt destination holds; so a peer that was stopped at just that
// moment is waited for once, and not for long, until it is heard again a while
// later: one that lives, and stops at every flag, must not stretch every fence.
func (b *borrowed) settle(down []link.Flag) {
	b.mu.Lock()
	page := b.page
	if page == nil || b.closed || b.hopeless.Load() != nil {
		b.mu.Unlock()
		return
	}
	b.users++
	b.mu.Unlock()
	hopeless, start := false, time.Now()
	for _, f := range down {
		for page.takes(f) && !hopeless {
			time.Sleep(10 * time.Microsecond)
			hopeless = time.Since(start) > stoppedPeer
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if hopeless {
		now := time.Now()
		b.hopeless.Store(&now)
	}
	b.unuseLocked()
}

// heard gives a peer that was given up so long ago another chance.
func (b *borrowed) heard(after time.Duration) {
	if since := b.hopeless.Load(); since != nil && time.Since(*since) > after {
		b.hopeless.CompareAndSwap(since, nil)
	}
}

// close gives everything back, as soon as no copier uses it.
func (b *borrowed) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	for _, l := range b.loans {
		b.giveBackLocked(l)
	}
	if b.page != nil && b.users == 0 {
		_ = b.page.close()
	}
}
