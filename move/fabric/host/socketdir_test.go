package host

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A socket's path is short. A state directory that is not gets a directory
// elsewhere, always the same one.
func TestSocketDirOfALongName(t *testing.T) {
	state := t.TempDir()
	elsewhere, err := os.MkdirTemp("/tmp", "s") // what testing gives is long itself
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(elsewhere)
	if dir, err := SocketDir(state); err != nil || dir != filepath.Join(state, "host") {
		t.Errorf("%s, %v", dir, err)
	}
	long := filepath.Join(state, strings.Repeat("l", maxSocketDir))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{"XDG_RUNTIME_DIR", "TMPDIR"} {
		t.Setenv("XDG_RUNTIME_DIR", "")
		t.Setenv(variable, elsewhere)
		dir, err := SocketDir(long)
		if err != nil || filepath.Dir(dir) != elsewhere {
			t.Errorf("%s: %s, %v", variable, dir, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		if again, err := SocketDir(long); err != nil || again != dir {
			t.Errorf("%s, then %s, %v", dir, again, err)
		}
		if other, err := SocketDir(long + "er"); err == nil && other == dir {
			t.Errorf("two state directories share %s", dir)
		}
	}
	t.Chdir(state)
	if dir, err := SocketDir("."); err != nil || dir != filepath.Join(state, "host") {
		t.Errorf("%s, %v", dir, err)
	}
}

// In a directory that others write to, a link or a file under our name is
// theirs.
func TestSocketDirThatIsNotOurs(t *testing.T) {
	base := t.TempDir()
	own := filepath.Join(base, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	link, file := filepath.Join(base, "link"), filepath.Join(base, "file")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{link, file} {
		if err := makeOwn(dir); err == nil || !strings.Contains(err.Error(), "is not a directory of this user") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(own, 1, 1); err != nil {
			t.Fatal(err)
		}
		if err := makeOwn(own); err == nil {
			t.Error("another user's directory was taken")
		}
	}
}

// Sockets of the dead are removed; those of the living hear nothing of it.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	dead, alive := filepath.Join(dir, "dead.sock"), filepath.Join(dir, "alive.sock")
	killed, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	killed.Close()
	listener, err := net.Listen("unix", alive)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sweep(dir)
	if _, err := os.Lstat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead one is left: %v", err)
	}
	if _, err := os.Lstat(alive); err != nil {
		t.Errorf("the living one was removed: %v", err)
	}
	caller, err := net.Dial("unix", alive)
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	if _, err := caller.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("another connection came before: %d, %v", n, err)
	}
}
