//go:build race

package hostile_test

// raceFactor is what the race detector makes of memory.
const raceFactor = 8
