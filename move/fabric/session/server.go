package session

import (
	"fmt"
	"maps"
	"slices"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// Server is the serving side's half of a link.
type Server struct {
	limit int
	ops   map[kv.ID]*servedTransfer
	cost  int // of them, in bytes
	// recent holds how the last transfers ended, so that a repeated or late
	// message finds the same answer and a notification is delivered once.
	recent recent
}

// servedTransfer is one transfer of the peer's.
type servedTransfer struct {
	write  bool
	parts  uint16
	placed uint16 // or given
	seen   map[uint16]bool
	notify bool
	// payload is a copy: the frame it came in is long gone when it is due.
	payload []byte
}

// NewServer admits at most limit transfers at a time and remembers the ends
// of the last so many.
func NewServer(limit, remember int) *Server {
	return &Server{limit: limit, ops: make(map[kv.ID]*servedTransfer), recent: newRecent(remember)}
}

// Len is how many transfers are running.
func (s *Server) Len() int { return len(s.ops) }

// Cost is about what the transfers that run cost, in bytes. Those of a transfer
// whose parts do not all come stay until it ends.
func (s *Server) Cost() int { return s.cost }

// cost is what a transfer keeps of its parts, whatever becomes of each.
func (o *servedTransfer) cost() int {
	const transfer, part = 256, 32
	return transfer + part*len(o.seen) + len(o.payload)
}

// Begin admits a part. With an error its bytes must be thrown away, and the
// effects already say so to the peer.
func (s *Server) Begin(b mrdn.Begin) ([]Effect, error) {
	switch end, ended := s.recent.get(b.ID); {
	case ended && end.err != nil:
		answer := ack(b.ID, b.Part, end.err)
		answer.Untouched = end.untouched
		return []Effect{answer}, end.err
	case ended && b.Write:
		return []Effect{ack(b.ID, b.Part, nil)}, fmt.Errorf("fabric: transfer %s is done already", b.ID)
	}
	// A read that is done may be read again: that changes nothing here.
	o := s.ops[b.ID]
	if o == nil {
		if len(s.ops) >= s.limit {
			err := fmt.Errorf("%w: %d transfers of this peer are running", fabric.ErrBusy, s.limit)
			return []Effect{refuse(b.ID, b.Part, err)}, err
		}
		o = &servedTransfer{write: b.Write, parts: b.Parts, seen: make(map[uint16]bool)}
		s.ops[b.ID] = o
		s.cost += o.cost()
	}
	if o.write != b.Write || o.parts != b.Parts || o.seen[b.Part] || o.notify && b.Notify {
		err := fmt.Errorf("%w: part %d of transfer %s contradicts what came before", fabric.ErrRefused, b.Part, b.ID)
		return s.fail(b.ID, b.Part, err), err
	}
	s.cost -= o.cost()
	o.seen[b.Part] = true
	if b.Notify {
		o.notify, o.payload = true, append([]byte(nil), b.Notification...)
	}
	s.cost += o.cost()
	return nil, nil
}

// Placed: every byte of a part of a write is in place and verified.
func (s *Server) Placed(id kv.ID, part uint16) []Effect {
	o := s.ops[id]
	if o == nil {
		return nil
	}
	o.placed++
	if o.placed < o.parts {
		// The data of this part is safe to acknowledge; only the last ack may
		// still turn into a refusal, when the notification finds no room.
		return []Effect{ack(id, part, nil)}
	}
	if o.notify {
		return []Effect{{Kind: Deliver, ID: id, Part: part, Payload: o.payload}}
	}
	s.finish(id, end{})
	return []Effect{ack(id, part, nil)}
}

// Delivered: the notification was taken, or there was no room for it.
func (s *Server) Delivered(id kv.ID, part uint16, err error) []Effect {
	switch {
	case part == mrdn.NoticeAck:
		s.recent.put(id, end{err: err}) // a read that is heard again may still run under the same id
	case s.ops[id] != nil:
		s.finish(id, end{err: err})
	}
	return []Effect{ack(id, part, err)}
}

// Served: every byte of a part of a read has left. A read runs while one of its
// parts does: whether all have come is the reader's to know, and one that is
// heard twice must not stay for want of the others.
func (s *Server) Served(id kv.ID) {
	if o := s.ops[id]; o != nil {
		if o.placed++; int(o.placed) == len(o.seen) {
			s.drop(id) // a notice may follow under the same id
		}
	}
}

// Refused: what a part names may not be touched, and was not.
func (s *Server) Refused(id kv.ID, part uint16, err error) []Effect {
	o := s.ops[id]
	if o == nil {
		return nil
	}
	s.finish(id, end{err: err, untouched: o.parts == 1})
	return []Effect{{Kind: Quiet, ID: id}, refuse(id, part, err)}
}

// Failed: memory could not be reached, a checksum was wrong, the region was
// fenced.
func (s *Server) Failed(id kv.ID, part uint16, err error) []Effect { return s.fail(id, part, err) }

// Cancelled: the peer wants no more of it.
func (s *Server) Cancelled(id kv.ID) []Effect {
	_, running := s.ops[id]
	s.finish(id, end{err: fabric.ErrCancelled})
	if !running {
		return nil
	}
	return []Effect{{Kind: Quiet, ID: id}}
}

// Noticed: a notification by itself, or the one that follows a read. What is to be
// delivered is the notice's own payload, which is valid as long as that is.
func (s *Server) Noticed(n mrdn.Notice) []Effect {
	if end, ended := s.recent.get(n.ID); ended {
		return []Effect{ack(n.ID, mrdn.NoticeAck, end.err)}
	}
	return []Effect{{Kind: Deliver, ID: n.ID, Part: mrdn.NoticeAck, Payload: n.Payload}}
}

// Lost: the link is gone; nothing of the peer's may touch memory any more.
func (s *Server) Lost() []Effect {
	var effects []Effect
	for _, id := range slices.SortedFunc(maps.Keys(s.ops), kv.ID.Compare) {
		effects = append(effects, Effect{Kind: Quiet, ID: id})
	}
	clear(s.ops)
	s.cost = 0
	return effects
}

func (s *Server) fail(id kv.ID, part uint16, err error) []Effect {
	if s.ops[id] == nil {
		return nil
	}
	s.finish(id, end{err: err})
	answer := ack(id, part, err)
	return []Effect{{Kind: Quiet, ID: id}, answer}
}

func (s *Server) finish(id kv.ID, e end) {
	s.drop(id)
	s.recent.put(id, e)
}

func (s *Server) drop(id kv.ID) {
	if o := s.ops[id]; o != nil {
		s.cost -= o.cost()
		delete(s.ops, id)
	}
}

func ack(id kv.ID, part uint16, err error) Effect {
	return Effect{Kind: SendAck, ID: id, Part: part, Err: err}
}

func refuse(id kv.ID, part uint16, err error) Effect {
	return Effect{Kind: SendAck, ID: id, Part: part, Err: err, Untouched: true}
}

// recent remembers the last so many ends. It grows to its size as they come: a
// link that does little, or a stranger's, costs little.
type recent struct {
	size int
	ring []kv.ID
	next int // the oldest, once the ring is full
	ends map[kv.ID]end
}

// end is how a transfer ended. Untouched ones did nothing at all here, which
// a poster that repeats them may hear again.
type end struct {
	err       error
	untouched bool
}

func newRecent(size int) recent { return recent{size: size, ends: make(map[kv.ID]end)} }

func (r *recent) get(id kv.ID) (end, bool) {
	e, known := r.ends[id]
	return e, known
}

func (r *recent) put(id kv.ID, e end) {
	if _, known := r.ends[id]; known {
		return
	}
	r.ends[id] = e
	if len(r.ring) < r.size {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.ends, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % r.size
}
