package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"meridian/see/telemetry/collectortest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"meridian": main, "raced": main, "collector": collect})
}

// asTest names the scripts whose meridian is this test's binary, also where there
// is another: what several parts at once do in it is for the race detector to see,
// or it knows what no stamp says.
var asTest = map[string]bool{"door": true, "version": true}

// collect is a collector of traces in a process of its own: `collector ADDRESS`.
func collect() {
	var c collectortest.Collector
	fmt.Println(http.ListenAndServe(os.Args[1], c.Handler()))
}

// Each file in testdata/script is one story of a user at a terminal. A command
// that does one thing after the other is run as `make test` has built it: under
// the race detector it would take ten times as long to start. A part that runs
// beside others is started as raced, which is always this test's binary.
func TestScripts(t *testing.T) {
	built := t.TempDir()
	if path := os.Getenv("MERIDIAN_BIN"); path != "" {
		if err := os.Symlink(path, filepath.Join(built, "meridian")); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			repository, err := os.Getwd()
			if err != nil {
				return err
			}
			e.Setenv("REPO", repository+"/../..")
			e.Setenv("HOME", e.WorkDir)
			if name := strings.TrimPrefix(filepath.Base(e.WorkDir), "script-"); !asTest[name] {
				e.Setenv("PATH", built+string(filepath.ListSeparator)+e.Getenv("PATH"))
			}
			e.Setenv("GORACE", os.Getenv("GORACE")) // a script hands nothing on by itself
			for i := range 4 {
				e.Setenv(fmt.Sprintf("PORT%d", i+1), strconv.Itoa(freePort()))
			}
			return nil
		},
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "ask": ask, "await": await},
		RequireExplicitExec: true,
	})
}

// nextPort counts through ports that the system gives out only when they are asked
// for, from a place of this process's own.
var nextPort atomic.Int32

// freePort is a port of this machine that no process listens on and no other script
// of this run is given.
func freePort() int {
	const first, count = 20000, 12000
	for {
		port := first + (os.Getpid()*64+int(nextPort.Add(1)))%count
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
}

// exits runs `exits STATUS COMMAND…` and demands that exit status.
func exits(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v exited with %d, want %d", args[1:], got, want)
	}
}
