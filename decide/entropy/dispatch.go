package entropy

// implementation is one implementation of the loops.
type implementation uint8

const (
	portable implementation = iota
	avx2
	avx512
)

// best is the fastest form that this machine can run.
var best = available()[0]
