package cell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Leftovers is what was found of a cell that did not end cleanly.
type Leftovers struct {
	// Unclean is whether there was one.
	Unclean bool
	// Parts are those that still ran.
	Parts []string
}

func (l Leftovers) String() string {
	if len(l.Parts) == 0 {
		return "the last cell here did not end cleanly; nothing of it ran any more"
	}
	return "the last cell here did not end cleanly; ended what it left: " + strings.Join(l.Parts, ", ")
}

// leftoverGrace is how long each of the left behind may take to leave.
const leftoverGrace = time.Second

// cleanUp ends what a killed cell has left behind. The caller holds the lock.
func cleanUp(ctx context.Context, dir string) (Leftovers, error) {
	r, err := ReadRecord(dir)
	if errors.Is(err, ErrNoCell) {
		return Leftovers{}, nil
	}
	if err != nil {
		return Leftovers{}, err
	}
	left := Leftovers{Unclean: true}
	// All are asked before any is waited for: gateways and engines that wait
	// for each other would take their time one by one.
	ends := make(chan error)
	ended := 0
	for _, p := range r.Parts {
		if p.Process == nil {
			continue
		}
		family, problem := p.Process.family()
		err = errors.Join(err, problem)
		if len(family) > 0 {
			left.Parts = append(left.Parts, p.Name)
		}
		for _, member := range family {
			ended++
			go func() { ends <- member.end(ctx, leftoverGrace) }()
		}
	}
	for range ended {
		err = errors.Join(err, <-ends)
	}
	if err != nil {
		return left, err
	}
	err = errors.Join(sweep(dir), forget(dir), os.Remove(recordPath(dir)))
	return left, err
}

// forget empties the cell's directory, in which the dead would hold their names
// until their leases end. All its records are leased, and a living member puts
// its own back. A directory that a process serves is left alone.
func forget(dir string) error {
	lock, err := os.Open(filepath.Join(dir, "directory.lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there was none
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, "directory"))
}

// sweep removes sockets that no process listens on any more.
func sweep(dir string) error {
	var errs []error
	for _, pattern := range []string{"directory.sock", "agent-*.sock", "door-*.sock"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			conn, err := net.DialTimeout("unix", path, time.Second)
			if err == nil {
				conn.Close()
			} else if errors.Is(err, syscall.ECONNREFUSED) {
				errs = append(errs, os.Remove(path))
			}
		}
	}
	return errors.Join(errs...)
}

// Ended is what Down found and ended.
type Ended struct {
	// Supervisor is the process that ran the cell; 0 if there was none any more.
	Supervisor int
	Leftovers
}

// Down stops the cell of a state directory, or what is left of one. A cell
// that has not ended when ctx does is killed.
func Down(ctx context.Context, dir string) (Ended, error) {
	var s Ended
	lock, err := acquire(dir)
	if running := (*RunningError)(nil); errors.As(err, &running) {
		if running.Record == nil {
			return s, fmt.Errorf("%w; try again in a moment", running)
		}
		s.Supervisor = running.Record.Supervisor.PID
		if err := endSupervisor(ctx, running.Record.Supervisor); err != nil {
			return s, err
		}
		lock, err = acquire(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%w with the state directory %s", ErrNoCell, dir)
	}
	if err != nil {
		return s, err
	}
	s.Leftovers, err = cleanUp(context.WithoutCancel(ctx), dir)
	if err == nil && s.Supervisor == 0 && !s.Unclean {
		err = fmt.Errorf("%w with the state directory %s", ErrNoCell, dir)
	}
	return s, errors.Join(err, lock.Close())
}

// patience is how long a cell may take to stop where its record does not say: all its
// stages may take all the time they have.
const patience = 5 * defaultDrain

// endSupervisor lets it stop in order while ctx lasts, then kills it.
func endSupervisor(ctx context.Context, supervisor Identity) error {
	limit := patience
	if deadline, bounded := ctx.Deadline(); bounded {
		limit = max(time.Until(deadline), leftoverGrace)
	}
	return supervisor.end(context.WithoutCancel(ctx), limit)
}
