package seeded

// Event is something that will happen to what On names, or to the world where that is
// zero.
type Event[T ~int64, P any] struct {
	At     T
	Serial uint64
	On     P
	Run    func()
}

// Queue holds what is to come, by time and then by when it was asked for.
type Queue[T ~int64, P any] []Event[T, P]

func (q Queue[T, P]) before(i, j int) bool {
	return q[i].At < q[j].At || q[i].At == q[j].At && q[i].Serial < q[j].Serial
}

// Push adds an event.
func (q *Queue[T, P]) Push(e Event[T, P]) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.before(i, parent) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// Pop takes the first event, of which there is one.
func (q *Queue[T, P]) Pop() Event[T, P] {
	h := *q
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = Event[T, P]{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
