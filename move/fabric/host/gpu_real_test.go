//go:build real

package host

import (
	"testing"

	"meridian/move/fabric/fabrictest"
)

// Host memory at one end, which the GPU sees, or does not. All of it is played where
// the race detector does not slow it.
func TestRealSuiteGPUAndHost(t *testing.T) {
	for _, unregistered := range []bool{false, true} {
		g := newGPUs(t, 1)
		for _, p := range g.processes {
			p.Unregistered = unregistered
		}
		o := g.suite(t, Options{Workers: 2})
		o.Brief = true
		o.NearSection = g.section(0, 0)
		fabrictest.Run(t, o)
	}
}
