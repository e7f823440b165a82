//go:build real

package tcp

import (
	"errors"
	"testing"

	"meridian/cuda"
	"meridian/cuda/cudatest"
	"meridian/fabric/fabrictest"
	"meridian/mem"
	"meridian/mem/vram"
)

// GPU memory is reached through its driver, and held to the same contract. All of it
// is played where nobody waits for the race detector; hand-offs with GPU memory are in
// the tests of doorserver.
func TestRealVRAM(t *testing.T) {
	machine := cudatest.NewMachine(1, 1<<40)
	list, err := cuda.List(machine.Process())
	if err != nil {
		t.Fatal(err)
	}
	pool := vram.NewPool(machine.Process())
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		if machine.Taken(0) != 0 {
			t.Errorf("%d bytes of the GPU are still taken", machine.Taken(0))
		}
	})
	o := suite(Options{})
	o.Brief = true
	o.NearSection = func(t testing.TB, sizeBytes uint64) *mem.Section {
		s, err := pool.Alloc(list[0].UUID, sizeBytes, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	o.FarSection = o.NearSection
	// What a device opens for the first bytes stays open.
	first := o.NearSection(t, 1)
	if err := errors.Join(first.WriteAt([]byte{1}, 0), first.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	fabrictest.Run(t, o)
}
