package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// StartProfile profiles this process into a directory until stop is called;
// with an empty directory it does nothing.
func StartProfile(directory, name string) (stop func() error, err error) {
	if directory == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(directory, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// Apart runs what is not part of the measured work under the label "bench", so
// that `go tool pprof -tagignore=bench` leaves it out of a profile.
func Apart(ctx context.Context, what string, do func() error) (err error) {
	pprof.Do(ctx, pprof.Labels("bench", what), func(context.Context) { err = do() })
	return err
}
