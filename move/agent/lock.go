package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"meridian/member/directory"
)

// NameLock is what the living agent of a name holds in its state directory:
// agent-NAME.lock. The kernel lets go of it when the process ends, however it
// ends, so its holder knows that those who held it before are dead.
type NameLock struct {
	file *os.File
	// ID is of the file, as this machine knows it since its boot. No other process
	// can come to hold a file of the same id while its holder lives, neither in
	// a copy of the state directory nor on another machine that shares it. Empty
	// where the machine does not tell.
	ID string
}

// lockPatience is how long a killed process may take to end.
const lockPatience = 2 * time.Second

// LockName takes the name, from a process that is being killed if need be.
func LockName(ctx context.Context, stateDir, name string) (*NameLock, error) {
	path := filepath.Join(stateDir, "agent-"+name+".lock")
	for end := time.Now().Add(lockPatience); ; {
		l, err := tryLock(path)
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, fmt.Errorf("node: lock of the agent's name: %w", err)
		case time.Now().After(end):
			return nil, fmt.Errorf("node: an agent %q runs already with the state directory %s, %s; stop it, or choose another name", name, stateDir, holderOf(path))
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryLock takes the lock, or fails with EWOULDBLOCK.
func tryLock(path string) (*NameLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &NameLock{file: file}
	if err := l.take(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

func (l *NameLock) take() error {
	if err := syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	held, err := l.file.Stat()
	if err != nil {
		return err
	}
	if !l.there() {
		return syscall.EWOULDBLOCK // an agent that left has just taken the file away
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	if _, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return err
	}
	l.ID = lockID(held)
	return nil
}

// there tells whether the file still has its name.
func (l *NameLock) there() bool {
	held, err := l.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(l.file.Name())
	return err == nil && os.SameFile(held, named)
}

func lockID(file os.FileInfo) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	stat, known := file.Sys().(*syscall.Stat_t)
	if err != nil || !known {
		return ""
	}
	return fmt.Sprintf("%s/%x/%d", strings.TrimSpace(string(boot)), stat.Dev, stat.Ino)
}

// holderOf tells who holds a lock, for people.
func holderOf(path string) string {
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		text, _ := io.ReadAll(io.LimitReader(file, 32))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return fmt.Sprintf("process %d", pid)
		}
	}
	return "in another process"
}

// kept are locks that are held until the process ends, whether or not their agents are
// still referred to: the runtime closes files that are not.
var kept sync.Map

// Keep holds the name until release, or until the process ends.
func (l *NameLock) Keep() {
	if l != nil {
		kept.Store(l, true)
	}
}

// Release lets go of the name, and leaves nothing behind.
func (l *NameLock) Release() error {
	kept.Delete(l)
	var err error
	if l.there() {
		err = os.Remove(l.file.Name())
	}
	return errors.Join(err, l.file.Close())
}

const (
	// nameWait is longer than the lease of an agent that has died stands, also
	// where the directory was away meanwhile and starts all leases anew.
	nameWait  = 4 * directory.DefaultTTL
	namePause = 100 * time.Millisecond
)

// AwaitName waits while the directory lists an agent of this name that may have
// died, and of which that cannot be proven: it ran on another machine, or with
// another state directory. Its lease ends soon if it has; if it lives, the agent
// that publishes the name is refused. So it is where the directory does not answer.
func AwaitName(ctx context.Context, d directory.Directory, name, lock string, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	for waiting := false; ; waiting = true {
		standing, err := d.Get(ctx, AgentKey(name))
		if err != nil {
			return
		}
		r, unreadable := ParseAgentRecord(standing)
		if unreadable == nil && lock != "" && r.Lock == lock {
			return
		}
		if !waiting {
			logger.Warn("the name is held by an agent that may live, on another machine or with another state directory; waiting for its lease to end",
				"agent", name, "incarnation", r.Incarnation, "longest", nameWait)
		}
		select {
		case <-time.After(namePause):
		case <-ctx.Done():
			return
		}
	}
}
