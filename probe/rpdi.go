package probe

// Window is how many tokens RPDI calls the last ones, as published.
const Window = 512

// RPDI is the Reasoning Path Deviation Index (arXiv:2603.14251): the mean entropy
// of the last [Window] tokens over the mean of all. A chain that loses its way
// becomes more undecided than it was. It needs the entropy of every token. The
// zero RPDI has seen nothing.
type RPDI struct {
	last   [Window]float64 // token i is at i mod Window
	local  float64         // the sum of last
	global float64         // the sum of all
	tokens int
	broken bool
}

// Add takes the entropy of the next token.
func (r *RPDI) Add(nats float64) {
	at := r.tokens % Window
	r.local += nats - r.last[at]
	r.last[at] = nats
	r.global += nats
	r.tokens++
	if at == Window-1 {
		// What subtractions left behind goes away before it grows.
		r.local = 0
		for _, v := range r.last {
			r.local += v
		}
	}
}

// Miss says that a token's entropy is not known. Neither mean is that of the
// chain any more, so the index is absent from here on.
func (r *RPDI) Miss() { r.broken = true }

// Index returns the mean of the last tokens over the mean of all, and whether
// there is such a thing: Window tokens are there, none is missing, and not all
// of them were certain.
func (r *RPDI) Index() (index float64, known bool) {
	local, global, known := r.Means()
	if !known || global <= 0 {
		return 0, false
	}
	return local / global, true
}

// Means returns the two means in nats, and whether they are known.
func (r *RPDI) Means() (local, global float64, known bool) {
	if r.broken || r.tokens < Window {
		return 0, 0, false
	}
	return r.local / Window, r.global / float64(r.tokens), true
}
