package disk

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writer(dir)
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, o Options) *Disk {
	t.Helper()
	d, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSuite(t *testing.T) {
	for name, buffered := range map[string]bool{"Direct": false, "Buffered": true} {
		t.Run(name, func(t *testing.T) {
			tiertest.Run(t, func(t *testing.T) tiertest.Subject {
				o := Options{Dir: filepath.Join(t.TempDir(), "disk"), Bytes: 16 << 20, SegmentBytes: 2 << 20, Buffered: buffered}
				return tiertest.Subject{Keeps: int(o.Bytes), Open: func(t *testing.T) tier.Tier { return open(t, o) }}
			})
		})
	}
}
