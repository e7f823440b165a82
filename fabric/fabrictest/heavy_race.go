//go:build race

package fabrictest

// heavyBytes is how much a heavy transfer moves. The race detector looks at every
// byte, so that half of what is heavy without it takes longer still.
const heavyBytes = 3 << 19
