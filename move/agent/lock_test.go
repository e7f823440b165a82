package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/member/directory"
	"meridian/member/directory/memdir"
)

func mustLock(t *testing.T, dir, name string) *NameLock {
	t.Helper()
	l, err := LockName(t.Context(), dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOneAgentHoldsAName(t *testing.T) {
	dir := t.TempDir()
	held := mustLock(t, dir, "a")
	if _, err := LockName(t.Context(), dir, "a"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("runs already with the state directory %s, process %d", dir, os.Getpid())) {
		t.Errorf("two holders of one name: %v", err)
	}
	other := mustLock(t, dir, "b")
	if held.ID == "" || other.ID == held.ID {
		t.Errorf("ids %q and %q", held.ID, other.ID)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := LockName(ctx, dir, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("waited on: %v", err)
	}
	for _, l := range []*NameLock{held, other} {
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A killed process leaves the file, and the next one has the same lock; a file
// that was taken away meanwhile is no agent's.
func TestNameOfTheDead(t *testing.T) {
	dir := t.TempDir()
	killed := mustLock(t, dir, "a")
	if err := killed.file.Close(); err != nil { // as the kernel does
		t.Fatal(err)
	}
	next := mustLock(t, dir, "a")
	if next.ID != killed.ID {
		t.Errorf("the lock was %q and is %q", killed.ID, next.ID)
	}
	if err := os.Rename(next.file.Name(), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	third := mustLock(t, dir, "a")
	if third.ID == next.ID {
		t.Error("another file has the same id")
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
	if !third.there() {
		t.Error("the file of another was taken away")
	}
	if err := third.Release(); err != nil {
		t.Error(err)
	}
}

// An agent whose death cannot be proven is waited for, for as long as leases
// last, and the log says so.
func TestNameIsAwaited(t *testing.T) { synctest.Test(t, nameIsAwaited) }

func nameIsAwaited(t *testing.T) {
	store := memdir.New(memdir.Options{})
	d, err := store.Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(context.Background())
	var log bytes.Buffer
	await := func(lock string) time.Duration {
		log.Reset()
		began := time.Now()
		AwaitName(t.Context(), d, "a", lock, slog.New(slog.NewTextHandler(&log, nil)))
		return time.Since(began)
	}
	if await("here"); log.Len() > 0 {
		t.Errorf("no other agent has the name: %s", &log)
	}
	if _, err := d.Put(t.Context(), directory.Entry{Key: AgentKey("a"), Value: []byte(`{"name": "a", "incarnation": "00000000000000000000000000000001", "lock": "here"}`)}); err != nil {
		t.Fatal(err)
	}
	if await("here"); log.Len() > 0 {
		t.Errorf("one of this lock is dead: %s", &log)
	}
	for _, lock := range []string{"elsewhere", ""} {
		ended := time.AfterFunc(300*time.Millisecond, func() { _ = d.Delete(context.Background(), AgentKey("a"), directory.Any) })
		if took := await(lock); took < 300*time.Millisecond || took > nameWait/2 || !strings.Contains(log.String(), "waiting for its lease to end") {
			t.Errorf("lock %q: waited %v, log %s", lock, took, &log)
		}
		ended.Stop()
		if _, err := d.Put(t.Context(), directory.Entry{Key: AgentKey("a"), Value: []byte(`{"name": "a", "incarnation": "00000000000000000000000000000001"}`)}); err != nil {
			t.Fatal(err)
		}
	}
}
