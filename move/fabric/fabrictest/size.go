//go:build !race

package fabrictest

// heavyBytes is how much a heavy transfer moves.
const heavyBytes = 3 << 20
