package entropy

// implementation is one implementation of the loops.
type implementation uint8

const (
	portable implementation = iota
	avx2
	avx512
)

func (f implementation) String() string { return [...]string{"portable", "AVX2", "AVX-512"}[f] }

// best is the fastest form that this machine can run.
var best = available()[0]
