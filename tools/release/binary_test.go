package main

import (
	"context"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"meridian/tools/internal/gomodule"
)

// smallProgram is a tree with a program that reports its stamp as the real one does.
func smallProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod": "module meridian\n\ngo 1.26.0\n",
		"cmd/meridian/main.go": `package main

import "os"

var version, commit, date string

func main() { os.Stdout.WriteString("meridian " + version + " " + commit + " " + date + "\n") }
`,
	})
	return dir
}

func someStamp(t *testing.T) Stamp {
	t.Helper()
	version, err := ParseVersion("v0.2.0-rc.1")
	if err != nil {
		t.Fatal(err)
	}
	return Stamp{Version: version, Commit: someCommit, Time: someTime}
}

func buildSmallProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meridian")
	if err := buildBinary(context.Background(), smallProgram(t), runtime.GOARCH, path, "", someStamp(t)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBinaryIsStaticAndStamped(t *testing.T) {
	if !isNative(runtime.GOARCH) {
		t.Skip("skipped: this machine does not run linux binaries")
	}
	binary, stamp := buildSmallProgram(t), someStamp(t)
	if err := checkRuns(context.Background(), binary, stamp.Version); err != nil {
		t.Error(err)
	}
	output, err := exec.Command(binary).Output()
	if want := "meridian v0.2.0-rc.1 " + someCommit + " 2026-11-15T07:41:48Z\n"; err != nil || string(output) != want {
		t.Errorf("printed %q, %v; want %q", output, err, want)
	}
	if err := checkRuns(context.Background(), binary, DevVersion(someCommit, false)); err == nil {
		t.Error("a binary with another version was accepted")
	}
	for _, other := range gomodule.Architectures {
		if err := checkStatic(binary, other); other != runtime.GOARCH && err == nil {
			t.Errorf("a binary for %s was accepted as one for %s", runtime.GOARCH, other)
		}
	}
}

func TestDynamicBinaryIsRefused(t *testing.T) {
	checked := 0
	for _, name := range []string{"true", "sh", "git", "python3"} {
		path, err := exec.LookPath(name)
		if err != nil || !isDynamic(path) {
			continue
		}
		checked++
		err = checkStatic(path, runtime.GOARCH)
		if err == nil || !strings.Contains(err.Error(), "not static") {
			t.Errorf("%s is dynamic, and the check says %v", path, err)
		}
	}
	if checked == 0 {
		t.Skip("skipped: no dynamically linked program on this machine")
	}
}

// isDynamic asks for the section, where checkStatic asks for the segment and the needed libraries.
func isDynamic(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return file.Section(".interp") != nil
}

func TestStaticCheckRefusesWhatIsNoBinary(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"script": "#!/bin/sh\n"})
	if err := checkStatic(filepath.Join(dir, "script"), runtime.GOARCH); err == nil {
		t.Error("a script was accepted")
	}
}
