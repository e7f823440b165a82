package file

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem"
)

func open(t testing.TB, o Options) *Fabric {
	t.Helper()
	f, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newFile(t testing.TB, sizeBytes uint64) *mem.Section {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "section"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := mem.OpenFile(f, sizeBytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func suite(o Options) fabrictest.Options {
	return fabrictest.Options{
		Loopback:   true,
		Brief:      true, // the workers are a pool of move/fabric/workers, which inproc plays in full
		FarSection: newFile,
		Open: func(t testing.TB, self fabric.Peer, events fabric.Events, _ fabric.Guard) fabric.Fabric {
			t.Helper()
			o := o
			o.Agent, o.Incarnation, o.Events, o.Workers, o.MaxTransfers = self.Name, self.Incarnation, events, 3, 1000
			return open(t, o)
		},
		Stall: hold,
	}
}

// hold stalls a fabric by keeping its workers waiting.
func hold(near, _ fabric.Fabric) (resume func()) {
	resume, err := near.(*Fabric).pool.Hold(context.Background())
	if err != nil {
		panic(err)
	}
	return resume
}

func TestFabric(t *testing.T) { fabrictest.Run(t, suite(Options{})) }
