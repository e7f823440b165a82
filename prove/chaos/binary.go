package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the program as the tests find it: MERIDIAN_BIN, or built once.
type built struct {
	once sync.Once
	path string
	dir  string // to remove; empty when nothing was built
	out  []byte
	err  error
}

var program built

// Binary is the path of the meridian program.
func Binary(t testing.TB) string {
	t.Helper()
	program.once.Do(program.make)
	if program.err != nil {
		t.Fatalf("cannot build meridian: %v\n%s", program.err, program.out)
	}
	return program.path
}

func (b *built) make() {
	if b.path = os.Getenv("MERIDIAN_BIN"); b.path != "" {
		return
	}
	if b.dir, b.err = os.MkdirTemp("", "meridian-chaos"); b.err != nil {
		return
	}
	b.path = filepath.Join(b.dir, "meridian")
	b.out, b.err = exec.Command("go", "build", "-o", b.path, "meridian/cmd/meridian").CombinedOutput()
}

func (b *built) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}
