package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/fabric"
)

// GetOptions say which object is meant, and where it may be. The zero value is plain.
type GetOptions struct {
	// Preferred names the owner that is asked first.
	Preferred string
	// Tenant is whose key it is; default the store's.
	Tenant string
}

// Get copies an object into a buffer, and returns how long it is. Its bytes are
// those that were put, or there is an error: ErrMissing, also when they were found to be
// broken.
func (s *Store) Get(ctx context.Context, key string, into []byte, o GetOptions) (n int, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	got, err := s.get(ctx, key, o, &reader{into: into})
	s.counters.get(uint64(len(got)), err)
	return len(got), err
}

// GetBytes returns an object in memory of its own.
func (s *Store) GetBytes(ctx context.Context, key string, o GetOptions) ([]byte, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	got, err := s.getBytes(ctx, key, o)
	s.counters.get(uint64(len(got)), err)
	return got, err
}

func (s *Store) getBytes(ctx context.Context, key string, o GetOptions) ([]byte, error) {
	for {
		got, err := s.get(ctx, key, o, &reader{grows: true})
		if !errors.Is(err, ErrTooSmall) {
			return got, err
		}
		at, err := s.locate(ctx, key, LocateOptions{Tenant: o.Tenant, Preferred: o.Preferred})
		if err != nil {
			return nil, err
		}
		if at.Bytes > maxGetBytes {
			return nil, fmt.Errorf("%w: %d bytes; use Get with a buffer", ErrTooLarge, at.Bytes)
		}
		got, err = s.get(ctx, key, o, &reader{into: make([]byte, at.Bytes)})
		if !errors.Is(err, ErrTooSmall) { // else another object has the key by now
			return got, err
		}
	}
}

// maxGetBytes bounds what an owner can make a client allocate.
const maxGetBytes = 1 << 34

// reader is where an object goes.
type reader struct {
	into []byte
	// grows says that memory is made for whatever is small or kept in this process.
	grows bool
}

// room is where an object of a size goes; nil, if there is none.
func (r *reader) room(size uint64) []byte {
	if r.grows && size > uint64(len(r.into)) {
		r.into = make([]byte, size)
	}
	if size > uint64(len(r.into)) {
		return nil
	}
	return r.into[:size]
}

// get gets an object, and checks what came.
func (s *Store) get(ctx context.Context, key string, o GetOptions, r *reader) ([]byte, error) {
	name, err := s.nameOf(o.Tenant, key)
	if err != nil {
		return nil, err
	}
	var got []byte
	_, _, err = s.operate(ctx, operation{
		name: name, preferred: o.Preferred, request: &protocol.Get{Name: name},
		ask: func(ctx context.Context, to kv.Member, m protocol.Message) (answer protocol.Message, err error) {
			got, answer, err = s.getFrom(ctx, to, m.(*protocol.Get), r)
			return answer, err
		},
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// getFrom asks one owner. An object whose bytes are broken counts as missing there.
func (s *Store) getFrom(ctx context.Context, to kv.Member, m *protocol.Get, r *reader) ([]byte, protocol.Message, error) {
	if to == s.self {
		return s.getHere(ctx, m, r)
	}
	m.Landing = protocol.Span{}
	var at place
	if len(r.into) > protocol.SmallValue {
		landed, closeLanding, err := s.openLanding(ctx, to, m, r.into)
		if err != nil {
			return nil, nil, err
		}
		defer closeLanding()
		at = landed
	}
	var got []byte
	var taken error
	answer, err := s.ask(ctx, to, m, taking{inline: func(v *protocol.Value) { got, taken = s.take(r, v, at, m.Landing) }})
	if err != nil {
		return nil, nil, err
	}
	v, is := answer.(*protocol.Value)
	if !is {
		if _, reply := answer.(*protocol.Reply); !reply {
			return nil, nil, unexpected(to, answer)
		}
		return nil, answer, nil
	}
	if v.Landed && at.buffer == nil {
		return nil, nil, unexpected(to, answer)
	}
	if v.Landed {
		got, taken = s.take(r, v, at, m.Landing)
	}
	if errors.Is(taken, ErrTorn) {
		s.distrust(ctx, to, &protocol.Remove{Name: m.Name, Checksum: v.Checksum})
		return nil, protocol.Refuse(fmt.Errorf("%w: %w", ErrMissing, taken)), nil
	}
	if taken != nil {
		return nil, protocol.Refuse(taken), nil
	}
	return got, answer, nil
}

// getHere asks the owner in this process, who copies into the reader's memory while
// it is asked.
func (s *Store) getHere(ctx context.Context, m *protocol.Get, r *reader) ([]byte, protocol.Message, error) {
	var got []byte
	m.Landing = protocol.Span{Length: uint64(len(r.into))}
	if r.grows {
		m.Landing.Length = 1 << 63
	}
	answer, err := s.ask(ctx, s.self, m, taking{into: func(size uint64) []byte {
		got = r.room(size)
		return got
	}})
	return got, answer, err
}

// openLanding lets an owner write where the reader's bytes go, or into the landing.
func (s *Store) openLanding(ctx context.Context, to kv.Member, m *protocol.Get, into []byte) (at place, shut func(), err error) {
	at, buffered := s.buffered(into)
	giveBack := func() {}
	if buffered { // else it is copied once more, and summed then
		at.sums = fabric.NewSums(at.buffer.region.ID, at.offset, at.length, true)
	} else if at, giveBack, err = s.landing.take(ctx, uint64(len(into))); err != nil {
		return place{}, nil, err
	}
	span, revoke, err := s.openPlace(ctx, to, fabric.Write, at)
	if err != nil {
		giveBack()
		return place{}, nil, err
	}
	m.Landing = span
	return at, func() {
		if revoke() {
			giveBack()
		}
	}, nil
}

// take moves a value to its reader's memory, and checks its sum on the way.
func (s *Store) take(r *reader, v *protocol.Value, at place, landing protocol.Span) ([]byte, error) {
	data := v.Data
	if v.Landed {
		if v.Bytes > landing.Length {
			return nil, fmt.Errorf("%w: %d bytes landed in %d", protocol.ErrMessage, v.Bytes, landing.Length)
		}
		data = at.bytes()[:v.Bytes]
	}
	dst := r.room(v.Bytes)
	if dst == nil {
		return nil, fmt.Errorf("%w: %d bytes for an object of %d", ErrTooSmall, len(r.into), v.Bytes)
	}
	var few [8 * 256]byte
	sums := few[:0]
	if v.Landed && at.sums != nil { // it lies where it belongs
		if placed := at.sums.Of(v.Bytes); placed != nil && checksum.OfSums(placed) == v.Checksum {
			return dst, nil
		}
		sums = checksum.AppendSums(sums, data)
	} else {
		sums = checksum.AppendCopy(sums, dst, data)
	}
	if checksum.OfSums(sums) != v.Checksum {
		return nil, fmt.Errorf("%w: as it came", ErrTorn)
	}
	return dst, nil
}

// distrust has an owner look at an object that came broken, and drop it if it is: what no
// reader can read must not keep writers from putting it again.
func (s *Store) distrust(ctx context.Context, at kv.Member, broken *protocol.Remove) {
	s.counters.torn.Add(1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := s.askPeer(ctx, at, broken); err != nil && !errors.Is(err, ErrMissing) && !errors.Is(err, protocol.ErrRefused) {
		s.options.Logger.Warn("an owner did not look at an object that came broken", "owner", at.Name, "error", err)
	}
}
