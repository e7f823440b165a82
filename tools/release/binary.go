package main

import (
	"context"
	"debug/elf"
	"fmt"
	"runtime"
	"strings"
	"time"

	"meridian/tools/internal/command"
	"meridian/tools/internal/gomodule"
)

const program = "./cmd/meridian"

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// A Stamp is what a binary knows about its own origin.
type Stamp struct {
	Version Version
	Commit  string
	Time    time.Time
}

// String is the stamp as the linker takes it.
func (s Stamp) String() string {
	return fmt.Sprintf("-X main.version=%s -X main.commit=%s -X main.date=%s", s.Version, s.Commit, s.Time.Format(time.RFC3339))
}

func (s Stamp) ldflags() string { return "-s -w -buildid= " + s.String() }

// buildBinary compiles the program in tree for linux on goarch into path. cache is the compiler's cache; empty means
// that of the user.
func buildBinary(ctx context.Context, tree, goarch, path, cache string, stamp Stamp) error {
	env := gomodule.Environment(goarch)
	if cache != "" {
		env = append(env, "GOCACHE="+cache)
	}
	_, err := command.Command{
		Dir: tree, Env: env,
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", stamp.ldflags(), "-o", path, program},
	}.Output(ctx)
	if err != nil {
		return err
	}
	return checkStatic(path, goarch)
}

// checkStatic refuses a binary that is not for goarch or that needs anything on the machine it runs on: a program
// interpreter or a shared library.
func checkStatic(path, goarch string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer file.Close()
	if want := machines[goarch]; file.Machine != want {
		return fmt.Errorf("%s is for %v, not %v", path, file.Machine, want)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static: it names a program interpreter", path)
		}
	}
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(libraries) > 0 {
		return fmt.Errorf("%s is not static: it needs %s", path, strings.Join(libraries, ", "))
	}
	return nil
}

func isNative(goarch string) bool { return runtime.GOOS == "linux" && runtime.GOARCH == goarch }

// checkRuns starts the binary and makes sure that it reports the version it was stamped with.
func checkRuns(ctx context.Context, path string, version Version) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	output, err := command.Command{Args: []string{path, "version"}}.Line(ctx)
	if err != nil {
		return err
	}
	for word := range strings.FieldsSeq(output) {
		if word == version.String() {
			return nil
		}
	}
	return fmt.Errorf("%s version says %q, which does not name %s", path, output, version)
}
