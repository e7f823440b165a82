package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"meridian/internal/require"
)

// world says that this process is in namespaces of its own.
const world = "MERIDIAN_CHAOS_WORLD"

// inItsOwnWorld runs a test once more in a process that has a network and
// mounts to itself, as a root of nothing else. It is true there; outside it
// reports what became of it. Where that is not permitted the test is skipped.
func inItsOwnWorld(t *testing.T) bool {
	t.Helper()
	t.Parallel()
	if os.Getenv(world) != "" {
		return true
	}
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.Env = append(os.Environ(), world+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case strings.Contains(string(out), "--- SKIP: "+t.Name()):
		require.Skip(t, "namespaces", string(out))
	case err == nil:
		t.Logf("in its own world:\n%s", out)
	case errors.As(err, &exit):
		t.Errorf("in its own world: %v\n%s", err, out)
	default:
		require.Skip(t, "namespaces", err.Error())
	}
	return false
}

// mountTmpfs mounts a small file system of memory, in a world of its own.
func mountTmpfs(t *testing.T, at string, sizeBytes int) {
	t.Helper()
	if err := syscall.Mount("none", at, "tmpfs", 0, fmt.Sprintf("size=%d", sizeBytes)); err != nil {
		require.Skip(t, "namespaces", "mount "+at+": "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// mustRun runs a program that belongs to the test's set-up.
func mustRun(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}
