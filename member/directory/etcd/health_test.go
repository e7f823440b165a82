package etcd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"meridian/member/directory"
)

// One question without an answer may be this process's own fault; silence is more.
func TestAPulseMissesOneBeat(t *testing.T) {
	for name, c := range map[string]struct {
		silent int // so many questions in a row
		want   error
	}{
		"none":     {0, nil},
		"one":      {healthMisses - 1, nil},
		"too many": {healthMisses, directory.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				p := startHealthCheck(func(ctx context.Context) (clusterState, error) {
					if asked++; asked <= c.silent {
						<-ctx.Done()
						return clusterState{}, ctx.Err()
					}
					return clusterState{cluster: 1, revision: int64(asked)}, nil
				})
				defer p.stop()
				watch, detach := p.attach(t.Context())
				defer detach()
				time.Sleep(10 * healthMisses * healthTimeout)
				if err := context.Cause(watch); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("the watch ended with %v, want %v", err, c.want)
				}
			})
		})
	}
}
