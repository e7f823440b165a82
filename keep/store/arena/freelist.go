package arena

// The free lists hold headers whose extents the owner has set aside for
// producers. A list is a stack: its head names a header, and carries a tag that
// changes with every push and pop, so that a producer that was slow cannot put
// back a head that came again. A header in a list is RESERVED; bytes_total is
// the size of its extent, and key_hash names the next, both plus 1.

const maxWalk = 64 // pops that may be lost to others before a producer asks the owner

// Offer puts a header with an extent of at least ClassBytes(class) bytes into a
// list. Only the owner does.
func (h *Heap) Offer(class int, i uint32, payload, size uint64, epoch uint32) {
	head := h.u64(ctlFreeHeads + 8*uint64(class))
	for {
		was := head.Load()
		h.store(i, &Header{KeyHash: was & 0xffffffff, PayloadBase: payload, Bytes: size})
		h.word(i).Store(uint64(MakeWord(Reserved, epoch)))
		if h.swap64(head, was, (was>>32+1)<<32|uint64(i+1)) {
			return
		}
	}
}

// takeOffer takes a header with an extent out of a list.
func (h *Heap) takeOffer(class int) (i uint32, header Header, ok bool) {
	head := h.u64(ctlFreeHeads + 8*uint64(class))
	for range maxWalk {
		was := head.Load()
		i = uint32(was) - 1
		if uint32(was) == 0 || i >= h.headers.count {
			return 0, Header{}, false
		}
		header = h.Load(i)
		if h.swap64(head, was, (was>>32+1)<<32|header.KeyHash&0xffffffff) {
			return i, header, true
		}
	}
	return 0, Header{}, false
}

// Withdraw takes all headers out of a list, which others may have tied into a
// ring. Only the owner does: it knows which it has offered, and believes no other.
func (h *Heap) Withdraw(class int, each func(i uint32)) {
	for range h.headers.count {
		i, _, ok := h.takeOffer(class)
		if !ok {
			break
		}
		each(i)
	}
	head := h.u64(ctlFreeHeads + 8*uint64(class))
	for was := head.Load(); uint32(was) != 0; was = head.Load() {
		if h.swap64(head, was, (was>>32+1)<<32) {
			return
		}
	}
}
