package entropy

// form is one implementation of the loops.
type form uint8

const (
	portable form = iota
	avx2
	avx512
)

func (f form) String() string { return [...]string{"portable", "AVX2", "AVX-512"}[f] }

// best is the fastest form that this machine can run.
var best = available()[0]
