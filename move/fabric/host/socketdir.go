package host

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketDir is how long a directory may be in which a socket is named after
// an incarnation: the system allows 107 bytes for all of it.
const maxSocketDir = 107 - len("/0123456789abcdef0123456789abcdef.sock")

// SocketDir finds a directory for the sockets by which agents of this machine
// meet, this user's alone: in the state directory, or, where that has too long a
// name, in one for short-lived files, named after the state directory.
func SocketDir(stateDir string) (string, error) {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return "", fmt.Errorf("node: state directory: %w", err)
	}
	digest := sha256.Sum256([]byte(stateDir))
	name := fmt.Sprintf("meridian-%d-%x", os.Getuid(), digest[:8])
	candidates := []string{filepath.Join(stateDir, "host")}
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) {
		candidates = append(candidates, filepath.Join(runtime, name))
	}
	var errs []error
	for _, dir := range append(candidates, filepath.Join(os.TempDir(), name)) {
		err := makeOwn(dir)
		if err == nil {
			sweep(dir)
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// makeOwn makes a directory of this user's alone, or finds that it is one. In a
// directory that others write to, another user may have taken the name.
func makeOwn(dir string) error {
	if !filepath.IsAbs(dir) || len(dir) > maxSocketDir {
		return fmt.Errorf("%s: a directory of sockets needs an absolute path of at most %d bytes", dir, maxSocketDir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; !info.IsDir() || int(owner) != os.Getuid() {
		return fmt.Errorf("%s is not a directory of this user", dir)
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return fmt.Errorf("%s is open to others (%v): chmod 0700 it", dir, info.Mode().Perm())
	}
	return nil
}

// sweep removes the sockets of agents that were killed. Whether a process has a
// socket is asked with one of another type, which it never hears of.
func sweep(dir string) {
	sockets, _ := filepath.Glob(filepath.Join(dir, "*.sock")) // the pattern is good
	for _, path := range sockets {
		conn, err := net.DialTimeout("unixgram", path, time.Second)
		if err == nil {
			conn.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path) // if not now, then next time
		}
	}
}
