package storm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Cache is an object cache as a client of it sees it. An error that is none of
// ErrMissing and ErrRefused leaves in doubt what happened.
type Cache interface {
	Put(ctx context.Context, key string, value []byte) error
	Get(ctx context.Context, key string) ([]byte, error)
	Remove(ctx context.Context, key string) error
	// Owner is the name of the owner that has the object.
	Owner(ctx context.Context, key string) (string, error)
}

var (
	// ErrMissing means that there is no such object.
	ErrMissing = errors.New("missing")
	// ErrRefused means that a put surely stored nothing.
	ErrRefused = errors.New("refused")
)

const (
	// Owners is how many lives of owners a Checker follows.
	Owners      = 8
	maxWriters  = 64
	liveEntries = 8       // that a writer uses at a time
	maxEntries  = 1 << 16 // of all writers, used or not
)

// Checker is what must hold of the objects of a cache, in memory that its clients
// share, so that it outlives each of them. Every object has one writer, which notes
// what it is about to do, and what it knows to be done:
//
//	begun ── put ──► settled, acked ── removing ── remove ──► removed ── begun …
//
// An object whose writer was left in doubt, or died meanwhile, is retired: what
// becomes of it later proves nothing.
type Checker struct {
	memory []byte
	*shared
}

type shared struct {
	Tallied [tallies]atomic.Uint64
	lives   [Owners]atomic.Uint64 // how often each owner was killed
	away    [Owners]atomic.Int64  // until when each may be taken for dead, in Unix milliseconds
	live    [maxWriters][liveEntries]atomic.Uint64
	entries [maxEntries]entry
}

// entry is one key. All but home and retired are versions of its value; 0 is none.
type entry struct {
	begun, settled, acked, removing, removed atomic.Uint64

	home    atomic.Uint64 // of the version that was acked: owner and life, or none
	retired atomic.Uint64
	lost    atomic.Uint64 // counted already
}

// What a Checker counts.
const (
	Right      = iota // gets of the right bytes
	Absent            // gets of objects that were not there, rightly
	Puts              // that were acknowledged
	Removes           // that were acknowledged
	Refused           // puts
	Unanswered        // gets
	Retired           // objects
	Died              // objects that went with their owner
	Away              // gets of objects whose owner stood still, or did so a moment ago
	Lost              // acknowledged objects that are missing though their owner lives
	Wrong             // torn, stale or risen values
	tallies
)

// OpenChecker shares the memory of a file, which the first to come makes.
func OpenChecker(path string) (*Checker, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := int(unsafe.Sizeof(shared{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Checker{memory, (*shared)(unsafe.Pointer(&memory[0]))}, nil
}

// Close ends the sharing.
func (w *Checker) Close() error { return syscall.Munmap(w.memory) }

// Killed says that an owner is about to be killed, with all it has.
func (w *Checker) Killed(owner int) { w.lives[owner].Add(1) }

// Still says that an owner stands still for longer than its lease, or goes on. What it
// has may be missing meanwhile, and until it has been heard again.
func (w *Checker) Still(owner int, is bool) {
	until := time.Now().Add(heardAgain).UnixMilli()
	if is {
		until = math.MaxInt64
	}
	w.away[owner].Store(until)
}

// heardAgain is how long it may take until an owner that goes on serves again.
const heardAgain = 5 * time.Second

func (w *Checker) String() string {
	names := [tallies]string{"right", "absent", "puts", "removes", "refused", "unanswered", "retired", "died with their owner", "away", "lost", "wrong"}
	var b strings.Builder
	for i, name := range names {
		n := w.Tallied[i].Load()
		if i == Wrong && n == 0 {
			continue // a word that the summary of tests never forgives
		}
		fmt.Fprintf(&b, "%d %s, ", n, name)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

func keyOf(id uint64) string { return fmt.Sprintf("object-%d", id) }

// valueHead is the key's number and the version, at the front of a value.
const valueHead = 16

// valueOf is what a version of an object has: small values mostly, and some that are
// too large for a message.
func valueOf(id, version uint64) []byte {
	random := rand.New(rand.NewPCG(id, version))
	size := valueHead + random.IntN(8<<10)
	switch random.IntN(8) {
	case 0:
		size = valueHead + random.IntN(1<<20)
	case 1, 2:
		size = valueHead + random.IntN(256<<10)
	}
	value := binary.LittleEndian.AppendUint64(make([]byte, 0, size+8), id)
	value = binary.LittleEndian.AppendUint64(value, version)
	for len(value) < size {
		value = binary.LittleEndian.AppendUint64(value, random.Uint64())
	}
	return value[:size]
}

// versionOf is which version of an object a value is; an error says how it is none.
func versionOf(id uint64, value []byte) (uint64, error) {
	if len(value) < valueHead || binary.LittleEndian.Uint64(value) != id {
		return 0, fmt.Errorf("%s: %d bytes of another object: %.16x", keyOf(id), len(value), value)
	}
	version := binary.LittleEndian.Uint64(value[8:])
	if string(valueOf(id, version)) != string(value) {
		return version, fmt.Errorf("%s: version %d is torn, %d bytes", keyOf(id), version, len(value))
	}
	return version, nil
}

// Read gets an object and judges what came, if the cache answered. An error tells of a
// wrong value, or of an object that is lost.
func (w *Checker) Read(ctx context.Context, c Cache, id uint64) (answered bool, err error) {
	e := &w.entries[id]
	acked, removed := e.acked.Load(), e.removed.Load()
	value, err := c.Get(ctx, keyOf(id))
	switch {
	case errors.Is(err, ErrMissing):
		return true, w.missed(id, acked, removed)
	case err != nil:
		w.Tallied[Unanswered].Add(1)
		return false, nil
	}
	version, err := versionOf(id, value)
	begun, retired := e.begun.Load(), e.retired.Load() != 0
	switch {
	case err != nil:
	case version > begun:
		err = fmt.Errorf("%s: version %d came, and only %d was begun", keyOf(id), version, begun)
	case retired:
	case version < acked:
		err = fmt.Errorf("%s: version %d came after %d was acknowledged", keyOf(id), version, acked)
	case version <= removed:
		err = fmt.Errorf("%s: version %d came after it was removed", keyOf(id), version)
	}
	if err != nil {
		w.Tallied[Wrong].Add(1)
		return true, fmt.Errorf("wrong: %w", err)
	}
	w.Tallied[Right].Add(1)
	return true, nil
}

// missed judges that an object was not found, which had been acknowledged and removed so
// far before it was asked for.
func (w *Checker) missed(id, acked, removed uint64) error {
	e := &w.entries[id]
	home := e.home.Load()
	if acked <= removed || e.removing.Load() >= acked || e.retired.Load() != 0 {
		w.Tallied[Absent].Add(1)
		return nil
	}
	if w.isAway(home) {
		w.Tallied[Away].Add(1)
		return nil
	}
	return w.lose(id, acked, home)
}

// lose counts a version that is missing, and was acknowledged in a life of its owner.
func (w *Checker) lose(id, version, home uint64) error {
	if w.entries[id].lost.Swap(version) == version {
		return nil // it was counted
	}
	if !w.alive(home) {
		w.Tallied[Died].Add(1)
		return nil
	}
	w.Tallied[Lost].Add(1)
	return fmt.Errorf("lost: %s: version %d is missing, and owner %d lives", keyOf(id), version, home>>32)
}

// alive reports whether an owner still has the life in which it took an object.
func (w *Checker) alive(home uint64) bool {
	if home>>32 == Owners { // not known which: an owner that was killed may have had it
		return uint32(home) == w.deaths()
	}
	return uint32(home) == uint32(w.lives[home>>32].Load())
}

// isAway reports whether the owner of an object may be taken for dead, or any where it
// is not known which has it.
func (w *Checker) isAway(home uint64) bool {
	for i := range w.away {
		if (home>>32 == uint64(i) || home>>32 == Owners) && time.Now().UnixMilli() < w.away[i].Load() {
			return true
		}
	}
	return false
}

func (w *Checker) deaths() (n uint32) {
	for i := range w.lives {
		n += uint32(w.lives[i].Load())
	}
	return n
}
