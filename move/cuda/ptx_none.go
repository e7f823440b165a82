//go:build !accel

package cuda

// kernelsPTX is only in the accelerated build: no other one has a driver that
// reads it.
const kernelsPTX = ""
