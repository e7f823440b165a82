package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/keep/store/tier"
)

// A disk that takes long to open says how far it is, to who asks and, now and then, to the log.
func TestADiskThatOpensForLongSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		o := tier.Open("disk", func(error) {}, func(ctx context.Context, progress func(read, of int)) (tier.Tier, error) {
			say := told(logger, progress)
			for n := range 25 {
				say(n, 100)
				time.Sleep(time.Second)
			}
			<-ctx.Done()
			return nil, errors.New("closed")
		})
		time.Sleep(24*time.Second + time.Second/2)
		synctest.Wait()
		if s := stateOf(o); s.Up || !strings.Contains(s.Problem, "24 of 100 segments") {
			t.Errorf("%+v", s)
		}
		if n := strings.Count(log.String(), "still being opened"); n != 2 || !strings.Contains(log.String(), "read=20 segments=100") {
			t.Errorf("%d lines in 24 s: %s", n, log.String())
		}
		if err := o.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
