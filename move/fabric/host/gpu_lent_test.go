//go:build accel

package host

import (
	"testing"

	"meridian/move/cuda"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// lender has GPU memory that it lends to agents, as engines do. What it lent is taken
// back when the test is over.
type lender interface {
	lend(t testing.TB, sizeBytes uint64) cuda.IPCHandle
}

// lent makes sections of one process out of what another one lends.
func (g *gpus) lent(process int, by lender) func(t testing.TB, sizeBytes uint64) *mem.Section {
	return func(t testing.TB, sizeBytes uint64) *mem.Section {
		t.Helper()
		s, err := g.pools[process].Import(vram.Lent{UUID: g.uuids[0], Handle: by.lend(t, sizeBytes), SizeBytes: sizeBytes})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// lentSuite is the suite with GPU memory that an engine lends to both agents.
func (g *gpus) lentSuite(t testing.TB, by lender) fabrictest.Options {
	o := g.suite(t, Options{Workers: 2})
	o.Brief = true
	o.NearSection, o.FarSection = g.lent(0, by), g.lent(1, by)
	return o
}

// sharing is two agents of one process, which share a pool: a process maps another's
// memory once.
func sharing(t *testing.T, p *vram.Pool, uuid cuda.UUID) *gpus {
	t.Helper()
	g := &gpus{uuids: []cuda.UUID{uuid}, pools: [2]*vram.Pool{p, p}}
	d, err := p.Device(uuid)
	if err != nil {
		t.Fatal(err)
	}
	for range gpuCopiers { // for one of them; warm has those of the other
		m, err := p.Mover(d)
		if err != nil {
			t.Fatal(err)
		}
		defer p.GiveBack(m)
	}
	g.warm(t, p)
	return g
}

// A third process of the model lends: see TestGPUSuiteOnDevice for the same on a GPU. It
// is built with that: the suite on the model is played by TestSuiteGPU.
func TestGPUSuiteLent(t *testing.T) {
	g := newGPUs(t, 1)
	shared := sharing(t, g.pools[0], g.uuids[0])
	engine := g.Process()
	d, err := cuda.Open(cuda.Options{Driver: engine})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Kill)
	fabrictest.Run(t, shared.lentSuite(t, modelLender{d}))
}

type modelLender struct{ device *cuda.Device }

func (l modelLender) lend(t testing.TB, sizeBytes uint64) cuda.IPCHandle {
	t.Helper()
	m, err := l.device.Alloc(sizeBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	h, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	return h
}
