package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/member/directory"
	"meridian/move/agent"
)

// brokenDirectory is closed only when it is well.
type brokenDirectory struct {
	directory.Directory
	err error
}

func (d *brokenDirectory) Close(context.Context) error { return d.err }

// An agent that could not be closed may live: no other gets its name.
func TestNameOfTheUnclosed(t *testing.T) {
	dir := t.TempDir()
	held, err := agent.LockName(t.Context(), dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	d := &brokenDirectory{err: errors.New("not now")}
	n := &Agent{Directory: d, name: held}
	if err := n.Close(t.Context()); !errors.Is(err, d.err) {
		t.Errorf("closed: %v", err)
	}
	if _, err := agent.LockName(t.Context(), dir, "a"); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("its name is free: %v", err)
	}
	d.err = nil
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "agent-a.lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
