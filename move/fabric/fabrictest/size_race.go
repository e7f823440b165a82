//go:build race

package fabrictest

// heavyBytes is how much a heavy transfer moves. The race detector looks at every
// byte, so that a quarter of what is heavy without it takes as long.
const heavyBytes = 3 << 18
