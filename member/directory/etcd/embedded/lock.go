package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"meridian/member/directory"
)

// ErrInUse says that another server has the state directory.
var ErrInUse = errors.New("another directory server is running here")

// lock is an exclusive hold on a state directory. The kernel lets go of it
// when the process ends, however it ends.
type lock struct{ file *os.File }

func acquire(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &directory.Error{Op: "open directory server", Subject: path, Err: err}
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, &directory.Error{
			Op: "open directory server", Subject: path, Err: ErrInUse,
			Hint: "stop " + holder(f) + ", or use another state directory",
		}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(&directory.Error{Op: "open directory server", Subject: path, Err: err}, f.Close())
	}
	return &lock{file: f}, nil
}

// holder names the process that wrote itself into the lock.
func holder(f io.Reader) string {
	pid, err := io.ReadAll(io.LimitReader(f, 20))
	if name := strings.TrimSpace(string(pid)); err == nil && name != "" {
		return "process " + name
	}
	return "it"
}

// release lets go at once. Closing alone would not: a process that this one is
// starting has the file, too, until it runs its own program. The file stays:
// removing it would let two servers hold two locks.
func (l *lock) release() error {
	return errors.Join(unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}
