//go:build accel

package tcp

import (
	"testing"

	"meridian/internal/require"
	"meridian/move/cuda"
	"meridian/move/fabric/fabrictest"
)

// The suite with memory of this machine's GPU at both ends.
func TestGPUSuiteOnDevice(t *testing.T) {
	if _, err := cuda.List(nil); err != nil {
		require.Skip(t, "gpu", err.Error())
	}
	pool, section := warmPool(t, nil)
	warm := pool.Counts()
	t.Cleanup(func() {
		if c := pool.Counts(); c != warm {
			t.Errorf("the agents still have %s, and had %s before", c, warm)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	o := suite(Options{Streams: 2})
	o.Brief, o.Sums = true, false
	o.NearSection, o.FarSection = section, section
	fabrictest.Run(t, o)
}
