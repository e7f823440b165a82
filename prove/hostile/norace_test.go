//go:build !race

package hostile_test

const raceFactor = 1
