package token

import (
	"fmt"
	"unicode/utf8"
)

// bpe is byte-pair encoding: the characters of a piece are tokens at first, and
// neighbours become one token, those with the lowest rank first and of these
// the leftmost, until no neighbours can.
type bpe struct {
	ids    map[string]uint32
	merges map[pair]merge
	// whole: a piece that is a token is not taken apart (Llama 3).
	whole bool
	// byteTokens are <0x00> … <0xFF>, for characters that are no tokens.
	byteTokens *[256]uint32
	unknown    *uint32
	// fuse: unknown characters in a row are one unknown token.
	fuse bool
	// letters finds the token of an ASCII or Latin-1-like rune without hashing.
	letters [512]int64
}

type (
	pair  struct{ left, right uint32 }
	merge struct{ rank, id uint32 }
)

// prepare makes what is derived from ids.
func (b *bpe) prepare() {
	for r := range b.letters {
		b.letters[r] = -1
		if id, found := b.ids[string(rune(r))]; found {
			b.letters[r] = int64(id)
		}
	}
}

// addMerge makes left and right neighbours that become one.
func (b *bpe) addMerge(rank int, left, right string) error {
	l, hasLeft := b.ids[left]
	r, hasRight := b.ids[right]
	both, hasBoth := b.ids[left+right]
	if !hasLeft || !hasRight || !hasBoth {
		return fmt.Errorf("merge %d joins %q and %q, and one of them or %q is not in the vocabulary", rank, left, right, left+right)
	}
	if _, twice := b.merges[pair{l, r}]; !twice {
		b.merges[pair{l, r}] = merge{rank: uint32(rank), id: both}
	}
	return nil
}

// encode appends the ids of a piece, which is spelled as the vocabulary is.
func (b *bpe) encode(ids []uint32, piece string) []uint32 {
	if b.whole {
		if id, found := b.ids[piece]; found {
			return append(ids, id)
		}
	}
	begin := len(ids)
	ids = b.characters(ids, piece)
	if symbols := ids[begin:]; len(symbols) > 1 && len(b.merges) > 0 {
		return ids[:begin+b.join(symbols)]
	}
	return ids
}

// characters appends the tokens of the characters of a piece.
func (b *bpe) characters(ids []uint32, piece string) []uint32 {
	wasUnknown := false
	for at := 0; at < len(piece); {
		r, size := utf8.DecodeRuneInString(piece[at:])
		text := piece[at : at+size]
		at += size
		if id, found := b.letter(r, text); found {
			ids, wasUnknown = append(ids, id), false
			continue
		}
		switch {
		case b.byteTokens != nil:
			for i := range len(text) {
				ids = append(ids, b.byteTokens[text[i]])
			}
		case b.unknown != nil && !(b.fuse && wasUnknown):
			ids = append(ids, *b.unknown)
			wasUnknown = true
		}
	}
	return ids
}

func (b *bpe) letter(r rune, text string) (uint32, bool) {
	if r >= 0 && int(r) < len(b.letters) {
		id := b.letters[r]
		return uint32(id), id >= 0
	}
	id, found := b.ids[text]
	return id, found
}

// symbol is a token on the way; joined ones leave the list.
type symbol struct {
	id         uint32
	prev, next int32
}

// candidate is a merge that may happen. It is stale once one of its symbols
// has changed.
type candidate struct {
	rank     uint32
	at       int32
	pair     pair
	becoming uint32
}

// join merges ids in place and returns how many are left. It takes n log n
// steps, so that a long piece without a break costs no more than a text.
func (b *bpe) join(ids []uint32) int {
	symbols := make([]symbol, len(ids))
	var waiting queue
	propose := func(left int32) {
		if left < 0 || symbols[left].next < 0 {
			return
		}
		p := pair{symbols[left].id, symbols[symbols[left].next].id}
		if m, found := b.merges[p]; found {
			waiting.push(candidate{rank: m.rank, at: left, pair: p, becoming: m.id})
		}
	}
	for i, id := range ids {
		symbols[i] = symbol{id: id, prev: int32(i - 1), next: int32(i + 1)}
	}
	symbols[len(ids)-1].next = -1
	for i := range ids {
		propose(int32(i))
	}
	const gone = -2
	for len(waiting) > 0 {
		c := waiting.pop()
		left := &symbols[c.at]
		if left.prev == gone || left.next < 0 || (pair{left.id, symbols[left.next].id}) != c.pair {
			continue
		}
		right := &symbols[left.next]
		left.id, left.next, right.prev = c.becoming, right.next, gone
		if left.next >= 0 {
			symbols[left.next].prev = c.at
		}
		propose(left.prev)
		propose(c.at)
	}
	count := 0
	for i := int32(0); i >= 0; i = symbols[i].next {
		ids[count] = symbols[i].id
		count++
	}
	return count
}

// queue is a heap of candidates: lowest rank first, then leftmost.
type queue []candidate

func (q queue) before(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].at < q[j].at
}

func (q *queue) push(c candidate) {
	*q = append(*q, c)
	for i := len(*q) - 1; i > 0 && q.before(i, (i-1)/2); i = (i - 1) / 2 {
		(*q)[i], (*q)[(i-1)/2] = (*q)[(i-1)/2], (*q)[i]
	}
}

func (q *queue) pop() candidate {
	h := *q
	top, end := h[0], len(h)-1
	h[0] = h[end]
	h = h[:end]
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < end && h.before(child, least) {
				least = child
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	*q = h
	return top
}
