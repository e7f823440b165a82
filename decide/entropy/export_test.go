package entropy

// Name is the instruction set in use.
func Name() string { return best.String() }

func (f implementation) String() string { return [...]string{"portable", "AVX2", "AVX-512"}[f] }

// Signal is what an estimator knows. What is not known is 0 and means nothing.
type Signal struct {
	Tokens      int // of the thought so far
	Transitions int // of them, more undecided than Options.Transition
	Missing     int // of them, without a usable entropy

	EAT EAT // EAT.Values is 0 where no context was forked
	// EATWarm means that the variance is held against its threshold.
	EATWarm bool

	RPDI, Local, Global float64 // the index, and the two means in nats
	MeansKnown          bool
	RPDIKnown           bool
}

// Signal returns what is known now.
func (e *Estimator) Signal() Signal {
	s := Signal{Tokens: e.tokens, Transitions: e.transitions, Missing: e.rpdi.missed, EAT: e.eat, EATWarm: e.eat.Warm(e.options.Alpha)}
	s.Local, s.Global, s.MeansKnown = e.rpdi.Means()
	s.RPDI, s.RPDIKnown = e.rpdi.Index()
	return s
}

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
	if r.missed > 0 || r.tokens < Window {
		return 0, 0, false
	}
	return r.local / Window, r.global / float64(r.tokens), true
}
