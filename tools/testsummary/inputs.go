package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kept is where a run leaves what the next one may use.
func (o options) kept(elements ...string) string {
	return filepath.Join(o.root, "bin", "tested", filepath.Join(elements...))
}

// isFresh: every test runs, in an order of chance. Otherwise Go keeps the results
// of packages whose inputs have not changed: their code, and the files and
// variables that their tests asked for.
func (o options) isFresh() bool { return o.fresh || o.needsMore() }

// needsMore: the tests are those of real components, which run whole and with
// bin/meridian.
func (o options) needsMore() bool { return o.real || o.core || o.vllm }

// showInputs makes variables, which Go sees, of the inputs that it does not: the
// program, and the programs of this machine.
func (o options) showInputs(components []string) error {
	if err := os.Setenv("MERIDIAN_HAVE", stamps(components)); err != nil {
		return err
	}
	if o.needsMore() {
		return nil
	}
	program, err := o.build()
	if err != nil {
		return err
	}
	return os.Setenv("MERIDIAN_BIN", program)
}

// stamps says where the programs on PATH are, and since when, by the names of
// components and those of compilers that stand for them.
func stamps(components []string) string {
	var list []string
	for _, name := range slices.Concat(components, cCompilers, cxxCompilers) {
		if path := hasProgram(name); path != "" {
			list = append(list, name+"="+stamp(path))
		}
	}
	return strings.Join(list, " ")
}

func stamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return path
	}
	return fmt.Sprintf("%s@%d,%d", path, info.ModTime().UnixNano(), info.Size())
}

// build makes the program without the version's stamp, which changes with every
// commit, and names it after its content: as long as that is the same, so is the
// path that tests are told. Older ones are removed.
func (o options) build() (path string, err error) {
	made := o.kept("new", "meridian")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", made, "./cmd/meridian")
	build.Dir, build.Env = o.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	content, err := os.ReadFile(made)
	if err != nil {
		return "", err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	path = o.kept(sum, "meridian")
	older, err := filepath.Glob(o.kept("*", "meridian"))
	if err != nil {
		return "", err
	}
	// One that is the same stays as it is: Go looks at its time, too.
	if !slices.Contains(older, path) {
		err = os.Rename(filepath.Dir(made), filepath.Dir(path))
	}
	for _, old := range older {
		if err == nil && old != path {
			err = os.RemoveAll(filepath.Dir(old))
		}
	}
	return path, err
}
