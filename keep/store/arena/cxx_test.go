package arena_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"meridian/internal/require"
	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
)

// cxxTool compiles the C++ end.
func cxxTool(t *testing.T) string {
	t.Helper()
	compiler := require.Program(t, "c++", "g++", "clang++")
	require.Reads(t, "../../../include")
	tool := filepath.Join(t.TempDir(), "store_tool")
	compile := exec.Command(compiler, "-std=c++20", "-O2", "-I", "../../../include", "../../../include/meridian/test/store_tool.cpp", "-o", tool)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return tool
}

// shared is an arena that other processes map, with its owner.
func shared(t *testing.T) (path string, w *owner.Owner, heap *arena.Heap) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "arena")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 16 << 20
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	if heap, err = arena.Format(b, arena.Options{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if w, err = owner.New(heap, owner.Options{Offers: 2}); err != nil {
		t.Fatal(err)
	}
	return path, w, heap
}

var sizes = []int{1, 100, 4095, 4096, 4097, 12000, 70_000, 1 << 20}

func payload(n int) []byte {
	b := make([]byte, sizes[n])
	for i := range b {
		b[i] = byte(n + 31*i + i>>8)
	}
	return b
}

// nameOf is the name of a key of tenant t, as a get asks for it.
func nameOf(t *testing.T, key string) []byte {
	t.Helper()
	name, err := protocol.ObjectName("t", key)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// run has the tool do what lines say, and demands that all is good.
func run(t *testing.T, tool, verb, path, lines string) {
	t.Helper()
	command := exec.Command(tool, verb, path)
	command.Stdin = strings.NewReader(lines)
	out, err := command.CombinedOutput()
	if want := strings.Repeat("good\n", strings.Count(lines, "\n")); err != nil || string(out) != want {
		t.Fatalf("%s: %v\n%s", verb, err, out)
	}
}

// A producer in C++ takes room, writes and announces; the owner takes its objects in,
// and serves them.
func TestOwnerTakesInWhatCXXPuts(t *testing.T) {
	tool := cxxTool(t)
	path, w, heap := shared(t)
	// What was put and removed is offered to producers, so that free lists are used.
	for n := range 20 {
		key := fmt.Appendf(nil, "old %d", n)
		p, err := w.Reserve(0, owner.Put{Key: key, Bytes: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Abort(p); err != nil {
			t.Fatal(err)
		}
	}
	w.Scan(0)
	var lines strings.Builder
	for n, size := range sizes {
		fmt.Fprintf(&lines, "t cxx/%d %d %d\n", n, size, n)
	}
	run(t, tool, "put", path, lines.String())
	if came := w.Ingest(1, 100); came != len(sizes) {
		t.Fatalf("%d of %d objects came: %+v", came, len(sizes), w.Stats())
	}
	for _, hash := range w.Arrived() {
		w.Admit(hash)
	}
	reused := 0
	for n := range sizes {
		key := nameOf(t, fmt.Sprintf("cxx/%d", n))
		at, err := w.Locate(1, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		got := make([]byte, at.Bytes)
		if err := heap.Read(arena.Wanted{Index: at.Header, Epoch: at.Epoch, Key: key}, got, 0); err != nil || !bytes.Equal(got, payload(n)) {
			t.Errorf("%s: wrong bytes: %v", key, err)
		}
		if at.Epoch > 0 {
			reused++
		}
	}
	if reused == 0 || reused == len(sizes) {
		t.Errorf("%d of %d objects lie in what was offered", reused, len(sizes))
	}
}

// What the owner has, C++ reads.
func TestCXXReadsWhatTheOwnerHas(t *testing.T) {
	tool := cxxTool(t)
	path, w, heap := shared(t)
	var lines strings.Builder
	for n, size := range sizes {
		key := nameOf(t, fmt.Sprintf("go/%d", n))
		p, err := w.Reserve(0, owner.Put{Key: key, Bytes: uint64(size)})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(0, p, heap.CopyIn(p.Offset, payload(n))); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "t go/%d %d %d %d %d\n", n, size, n, p.Header, p.Epoch)
	}
	run(t, tool, "read", path, lines.String())
}
