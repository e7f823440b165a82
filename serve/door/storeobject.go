package door

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"meridian/serve/door/doorpb"
)

// inlineBytes is up to where a value travels in a frame: beyond, that the agent
// copies it itself costs less.
const inlineBytes = 16 << 10

// lent is memory of this process in a request.
type lent struct{ pinner runtime.Pinner }

func (l *lent) address(memory []byte) uint64 {
	l.pinner.Pin(&memory[0])
	return uint64(uintptr(unsafe.Pointer(&memory[0])))
}

// end lets memory move again; what the agent may have still never does.
func (l *lent) end(err error) {
	if !errors.Is(err, ErrHeld) {
		l.pinner.Unpin()
	}
}

// Put stores an object: a *Problem with CodeExists where there is one of that key.
func (s *Store) Put(ctx context.Context, key, value []byte, w Wish) error {
	put := &doorpb.StorePut{Keys: [][]byte{key}, Wish: w.message()}
	var memory lent
	if len(value) <= inlineBytes {
		put.Values = [][]byte{value}
	} else {
		put.Addresses, put.Sizes = []uint64{memory.address(value)}, []uint64{uint64(len(value))}
	}
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Put{Put: put}})
	memory.end(err)
	return wrap("put", key, oneProblem(result, err))
}

// oneProblem is what became of the only key of a request.
func oneProblem(result *doorpb.StoreResult, err error) error {
	if err == nil && len(result.GetProblems()) > 0 {
		if p := problemOf(result.GetProblems()[0]); p != nil {
			return p
		}
	}
	return err
}

func wrap(what string, key []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%s %.80q: %w", what, key, err)
	}
	return nil
}

// Get returns an object: a *Problem with CodeMissing where there is none.
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	size, value, err := s.get(ctx, key, nil)
	for isTooSmall(err) && size > 0 {
		value = make([]byte, size)
		size, _, err = s.get(ctx, key, value) // again where another came meanwhile
	}
	if err != nil {
		return nil, err
	}
	return value[:min(size, uint64(len(value)))], nil
}

// GetInto reads an object into memory of the caller and returns its size, also with
// the *Problem that it does not fit (CodeTooSmall).
func (s *Store) GetInto(ctx context.Context, key, dst []byte) (sizeBytes uint64, err error) {
	if len(dst) == 0 {
		return 0, errors.New("door: there is no memory to get an object into")
	}
	sizeBytes, _, err = s.get(ctx, key, dst)
	return sizeBytes, err
}

func isTooSmall(err error) bool {
	var p *Problem
	return errors.As(err, &p) && p.Code == CodeTooSmall
}

func (s *Store) get(ctx context.Context, key, dst []byte) (size uint64, value []byte, err error) {
	get := &doorpb.StoreGet{Keys: [][]byte{key}}
	var memory lent
	if len(dst) > 0 {
		get.Addresses, get.Sizes = []uint64{memory.address(dst)}, []uint64{uint64(len(dst))}
	}
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Get{Get: get}})
	memory.end(err)
	if len(result.GetSizes()) == 1 {
		size = result.GetSizes()[0]
	}
	if len(result.GetValues()) == 1 {
		value = result.GetValues()[0]
	}
	return size, value, wrap("get", key, oneProblem(result, err))
}

// Remove removes an object: a *Problem with CodeMissing where there is none.
func (s *Store) Remove(ctx context.Context, key []byte) error {
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Remove{Remove: &doorpb.StoreRemove{Keys: [][]byte{key}}}})
	return wrap("remove", key, oneProblem(result, err))
}

// Open makes room for an object, which is written piece by piece and found after
// Commit.
func (s *Store) Open(ctx context.Context, key []byte, sizeBytes uint64, w Wish) (Place, error) {
	open := &doorpb.StoreOpen{Key: key, SizeBytes: sizeBytes, Wish: w.message()}
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Open{Open: open}})
	return placeOf(result.GetPlace()), wrap("open", key, err)
}

// Write writes a piece of what was opened.
func (s *Store) Write(ctx context.Context, key []byte, offset uint64, piece []byte) error {
	write := &doorpb.StoreWrite{Key: key, Offset: offset}
	var memory lent
	if len(piece) <= inlineBytes {
		write.Value = piece
	} else {
		write.Address, write.SizeBytes = memory.address(piece), uint64(len(piece))
	}
	_, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Write{Write: write}})
	memory.end(err)
	return wrap("write", key, err)
}

// Commit lets an object be found that was opened; it is over in any case.
func (s *Store) Commit(ctx context.Context, key []byte) error {
	_, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Commit{Commit: &doorpb.StoreCommit{Key: key}}})
	return wrap("commit", key, err)
}

// Abort gives the room of an object back that was opened.
func (s *Store) Abort(ctx context.Context, key []byte) error {
	_, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Commit{Commit: &doorpb.StoreCommit{Key: key, Abort: true}}})
	return wrap("abort", key, err)
}

// Locate says where an object lies, and waits for it for so long to be ready.
func (s *Store) Locate(ctx context.Context, key []byte, wait time.Duration) (Place, error) {
	locate := &doorpb.StoreLocate{Key: key, WaitMs: uint32(min(max(wait, 0), maxStoreDeadline).Milliseconds())}
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Locate{Locate: locate}})
	return placeOf(result.GetPlace()), wrap("locate", key, err)
}

// Has says which of at most MaxStoreNames objects are there.
func (s *Store) Has(ctx context.Context, keys [][]byte) ([]bool, error) {
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Has{Has: &doorpb.StoreHas{Keys: keys}}})
	if err == nil && len(result.GetPresent()) != len(keys) {
		err = fmt.Errorf("%w: %d answers about %d keys", ErrFrame, len(result.GetPresent()), len(keys))
	}
	return result.GetPresent(), err
}

// List lists objects. The tenant is the client's own, if not all are asked for.
func (s *Store) List(ctx context.Context, l List) (Listing, error) {
	list := &doorpb.StoreList{Prefix: l.Prefix, After: l.After, Most: uint32(min(max(l.Most, 0), MaxStoreListed)), AllTenants: l.AllTenants}
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_List{List: list}})
	if err != nil {
		return Listing{}, err
	}
	listing, ok := listingOf(result.GetListing())
	if !ok {
		return Listing{}, fmt.Errorf("%w: columns of a listing have different lengths", ErrFrame)
	}
	return listing, nil
}

// Stats says how each owner stands.
func (s *Store) Stats(ctx context.Context) (owners []OwnerStats, err error) {
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Stats{Stats: &doorpb.StoreStats{}}})
	for _, o := range result.GetOwners() {
		owners = append(owners, ownerStatsOf(o))
	}
	return owners, err
}

// Evict lets objects go until so many thousandths of each heap are used at most.
func (s *Store) Evict(ctx context.Context, permille uint32) (objects uint64, err error) {
	result, err := s.do(ctx, &doorpb.Store{What: &doorpb.Store_Evict{Evict: &doorpb.StoreEvict{Permille: permille}}})
	return result.GetEvicted(), err
}

// Arena is the memory of an agent's own objects, as docs/store-layout.md draws it.
type Arena struct {
	File     *os.File // the caller closes it
	Writable bool
	line     *storeLine
}

// Current reports whether the agent that gave it is still connected. One that is
// started again has other memory.
func (a Arena) Current() bool { return !a.line.isOver() }

// Map asks for the memory of the agent's own objects.
func (s *Store) Map(ctx context.Context) (Arena, error) {
	line, err := s.current(ctx)
	if err != nil {
		return Arena{}, err
	}
	result, file, err := s.askAt(ctx, line, &doorpb.Store{What: &doorpb.Store_Map{Map: &doorpb.StoreMap{}}})
	if err == nil && file == nil {
		err = fmt.Errorf("%w: no descriptor came with the arena", ErrFrame)
	}
	return Arena{File: file, Writable: result.GetArena().GetWritable(), line: line}, err
}
