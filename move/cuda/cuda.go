// Package cuda owns the GPUs of this machine: their memory, what runs on them,
// and what other processes lend of them. It stands on CUDA's driver alone, which
// the accelerated build loads when it is first asked (tag accel, no cgo); any
// other build answers ErrUnsupported.
//
//	Driver    CUDA's driver, call by call: libcuda, or cudatest's in tests
//	Device    one GPU, with its primary context, and a count of all it has open
//	Memory    VRAM of our own              Import   VRAM that another process lends
//	Pinned    host memory that stays put   Stream   work in order    Event   a point in it
//	Moves     a copy in strided runs, as the kernels here read it
//
// Nothing here waits for a whole device: work is awaited by streams and events.
package cuda

import "errors"

// ErrUnsupported means that this binary cannot use GPUs, whatever the machine has.
var ErrUnsupported = errors.New("cuda: this binary has no accelerator support: use meridian-accel (make build-accel)")

// ErrClosed means that the device is closed.
var ErrClosed = errors.New("cuda: device is closed")
