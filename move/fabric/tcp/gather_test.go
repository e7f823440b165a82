package tcp

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// A source that cannot be read fails its own transfer. The checksum of whatever
// left before it on the same stream has not left yet, and must.
func TestUnreadableSourceFailsAlone(t *testing.T) {
	const size = 16 << 20
	p := newPair(t, 4*size, Options{Streams: 1, ChunkBytes: 64 << 10})
	file, err := os.Create(filepath.Join(t.TempDir(), "short"))
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	section, err := mem.OpenFile(file, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.a.Deregister(t.Context(), 2); err != nil {
			t.Error(err)
		}
		if err := section.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := p.a.Register(fabric.Region{ID: 2, Epoch: 7, Section: section}); err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	whole := scattered(size, size, 1)
	short := fabric.List{{Region: 2, Epoch: 7}}
	beside := fabric.List{{Region: 1, Epoch: 7}}
	for list, offset := range map[*fabric.List]uint64{&short: 0, &beside: 3 * size} {
		if err := (*list)[0].Spans.Add(offset, 128<<10); err != nil {
			t.Fatal(err)
		}
	}
	good, err := p.link.Prepare(fabric.Write, whole, whole)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Release()
	bad, err := p.link.Prepare(fabric.Write, short, beside)
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Release()
	for range 8 {
		running, err := p.link.Post(t.Context(), good, fabric.PostOptions{ID: newID()})
		if err != nil {
			t.Fatal(err)
		}
		failing, err := p.link.Post(t.Context(), bad, fabric.PostOptions{ID: newID()})
		if err != nil {
			t.Fatal(err)
		}
		if err := failing.Await(t.Context()); err == nil {
			t.Error("read from a file that is empty")
		}
		if err := running.Await(t.Context()); err != nil {
			t.Fatalf("the transfer beside it: %v", err)
		}
	}
}

// Sums that a source has already travel as they are: right ones are not taken again, and
// wrong ones, or a source that is not what they say, are found where the bytes arrive.
func TestKnownSumsTravel(t *testing.T) {
	const size, offset = 3<<20 + 100, 64
	p := newPair(t, 4*size, Options{ChunkBytes: 64 << 10})
	list := fabric.List{{Region: 1, Epoch: 7}}
	if err := list[0].Spans.Add(offset, size); err != nil {
		t.Fatal(err)
	}
	request, err := p.link.Prepare(fabric.Write, list, list)
	if err != nil {
		t.Fatal(err)
	}
	defer request.Release()
	right := checksum.AppendSums(nil, p.ma.Bytes(offset, size))
	for name, change := range map[string]func(sums []byte){
		"right": nil, "the first is wrong": func(sums []byte) { sums[0] ^= 1 }, "the last is wrong": func(sums []byte) { sums[len(sums)-1] ^= 1 },
	} {
		sums := bytes.Clone(right)
		if change != nil {
			change(sums)
		}
		running, err := p.link.Post(t.Context(), request, fabric.PostOptions{ID: newID(), Sums: fabric.KnownSums(1, offset, size, sums)})
		if err != nil {
			t.Fatal(err)
		}
		if err := running.Await(t.Context()); (err != nil) != (change != nil) || err != nil && !errors.Is(err, fabric.ErrChecksum) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
