//go:build !(accel && linux && (amd64 || arm64))

package cuda

// Built tells whether this binary can use GPUs at all.
const Built = false

func load() (Driver, error) { return nil, ErrUnsupported }
