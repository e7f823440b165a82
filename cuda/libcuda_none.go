//go:build !(accel && linux && (amd64 || arm64))

package cuda

func load() (Driver, error) { return nil, ErrUnsupported }
