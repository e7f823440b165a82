package meridian

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/internal/require"
)

// scratch is a tree with some files of this one, where scripts meet programs
// that do as a test wants.
type scratch struct {
	t         *testing.T
	dir, bin  string
	variables []string
}

func newScratch(t *testing.T, files ...string) *scratch {
	t.Helper()
	s := &scratch{t: t, dir: t.TempDir(), bin: t.TempDir()}
	for _, name := range files {
		s.write(filepath.Join(s.dir, name), string(read(t, name)))
	}
	return s
}

func (s *scratch) write(path, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		s.t.Fatal(err)
	}
}

// program puts a program of that name before all others.
func (s *scratch) program(name, body string) {
	s.t.Helper()
	s.write(filepath.Join(s.bin, name), "#!/bin/sh\n"+body+"\n")
}

// run returns the exit status and what was printed.
func (s *scratch) run(name string, args ...string) (int, string) {
	s.t.Helper()
	command := exec.Command(require.Program(s.t, name), args...)
	command.Dir = s.dir
	plain := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "MERIDIAN_") || strings.HasPrefix(entry, "MAKE")
	})
	command.Env = slices.Concat(plain, []string{"PATH=" + s.bin + ":" + os.Getenv("PATH")}, s.variables)
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// expect demands an exit status and a line that holds text.
func (s *scratch) expect(status int, text, name string, args ...string) {
	s.t.Helper()
	got, out := s.run(name, args...)
	if got != status || !strings.Contains(out, text) {
		s.t.Errorf("%s %v exits with %d, want %d with %q\n%s", name, args, got, status, text, out)
	}
}

var checkScript = []string{"tools/check.sh", "tools/require.sh", "internal/require/components.txt"}

func TestCheckFailsWhereAToolCannotRun(t *testing.T) {
	s := newScratch(t, checkScript...)
	s.program("git", "echo a.go")
	s.program("go", "echo no such tool >&2; exit 1")
	s.expect(1, "FAILED   gofumpt", "bash", "tools/check.sh", "gofumpt")
	s.program("go", "echo a.go")
	s.expect(1, "not formatted", "bash", "tools/check.sh", "gofumpt")
	s.program("go", "exit 0")
	s.expect(0, "ok       gofumpt", "bash", "tools/check.sh", "gofumpt")
}

func TestCheckTellsAFindingFromAnOutage(t *testing.T) {
	s := newScratch(t, checkScript...)
	s.program("go", "echo see vuln.go.dev; exit 3")
	s.expect(1, "FAILED   govulncheck", "bash", "tools/check.sh", "govulncheck")
	s.program("go", "echo does not compile; exit 1")
	s.expect(1, "FAILED   govulncheck", "bash", "tools/check.sh", "govulncheck")
	s.program("go", "echo fetching vulnerabilities: no such host; exit 1")
	s.expect(0, "skipped  govulncheck: needs vulnerability-database", "bash", "tools/check.sh", "govulncheck")
	s.variables = []string{"MERIDIAN_REQUIRE=cc, vulnerability-database"}
	s.expect(1, "FAILED   govulncheck", "bash", "tools/check.sh", "govulncheck")
}

func TestCheckNamesWhatItCouldNotSee(t *testing.T) {
	s := newScratch(t, checkScript...)
	const licences = "licences of Python packages"
	s.expect(0, "skipped  "+licences+": needs python-packages", "bash", "tools/check.sh", licences)
	s.variables = []string{"MERIDIAN_REQUIRE=python-packages"}
	s.expect(1, "FAILED   "+licences, "bash", "tools/check.sh", licences)
	s.variables = []string{"MERIDIAN_REQUIRE=python-package"}
	s.expect(2, "MERIDIAN_REQUIRE names python-package, which is not in", "bash", "tools/check.sh", licences)
}

func TestCheckSeesTestsOfRealComponents(t *testing.T) {
	s := newScratch(t, checkScript...)
	for _, name := range []string{"go vet", "staticcheck"} {
		s.program("go", "case \"$*\" in *-tags=real*) exit 0 ;; *) exit 1 ;; esac")
		s.expect(0, "ok       "+name, "bash", "tools/check.sh", name)
	}
}

func TestStaticCheck(t *testing.T) {
	s := newScratch(t, "tools/static.sh", "tools/require.sh", "internal/require/components.txt")
	s.program("readelf", "true")
	s.expect(0, "x is static", "bash", "tools/static.sh", "x")
	s.program("readelf", "echo ' INTERP 0x0'")
	s.expect(1, "x is not static", "bash", "tools/static.sh", "x")
	s.program("readelf", "echo no ELF; exit 1")
	s.expect(1, "", "bash", "tools/static.sh", "x")

	lacking := newScratch(t, "tools/static.sh", "tools/require.sh", "internal/require/components.txt")
	lacking.variables = []string{"PATH=" + lacking.bin}
	for _, name := range []string{"bash", "dirname", "cut", "grep"} {
		if err := os.Symlink(require.Program(t, name), filepath.Join(lacking.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	lacking.expect(0, "skipped: needs readelf", "bash", "tools/static.sh", "x")
	lacking.variables = append(lacking.variables, "MERIDIAN_REQUIRE=cc,readelf")
	lacking.expect(1, "needs readelf", "bash", "tools/static.sh", "x")
}

// A recipe that fails makes make exit with 2.
const recipeFailed = 2

func TestMakeUpRunsWhatItBuilt(t *testing.T) {
	s := newScratch(t, "Makefile", "tools/static.sh", "tools/require.sh", "internal/require/components.txt")
	// The build leaves a program that repeats what it is told.
	s.program("go", `[ "$1" != build ] || { mkdir -p bin; printf '#!/bin/sh\necho "told: $*"\n' > bin/meridian; chmod +x bin/meridian; }`)
	s.program("readelf", "echo static")
	s.expect(0, "told: up --demo --model tiny", "make", "up", "ARGS=--demo --model tiny")
	s.write(filepath.Join(s.dir, "bin", "meridian"), "")
	s.program("go", "exit 1")
	s.expect(recipeFailed, "", "make", "up")
	_, help := s.run("make", "help")
	for _, target := range []string{"up", "venv", "build", "test"} {
		if !strings.Contains(help, "\n  "+target+" ") && !strings.HasPrefix(help, "  "+target+" ") {
			t.Errorf("make help does not list %s:\n%s", target, help)
		}
	}
}

func TestMakeVenvKeepsAnEnvironmentThatWorks(t *testing.T) {
	s := newScratch(t, "Makefile", "python/requirements.lock", "python/requirements-dev.lock")
	python := filepath.Join(s.dir, ".venv", "bin", "python")
	s.write(python, "#!/bin/sh\n")
	s.write(filepath.Join(s.dir, ".venv", "bin", "pip"), "#!/bin/sh\nexit 1\n")
	s.program("python3", "exit 0")
	s.expect(0, "it is used as it is", "make", "venv")
	if _, err := os.Stat(python); err != nil {
		t.Error(err)
	}
	s.program("python3", "exit 1")
	s.expect(recipeFailed, "Python 3.11 or newer is needed", "make", "venv")
}

func TestMakeFuzzFailsWhereAPackageDoesNotCompile(t *testing.T) {
	s := newScratch(t, "Makefile")
	s.write(filepath.Join(s.dir, "go.mod"), "module scratch\n\ngo 1.26\n")
	s.write(filepath.Join(s.dir, "a_test.go"), "package scratch\n\nfunc FuzzA(")
	s.expect(recipeFailed, "FAIL", "make", "fuzz", "FUZZTIME=1x")
}

// What fails in continuous integration hides nothing of what comes after it.
func TestEveryStepOfContinuousIntegrationRuns(t *testing.T) {
	steps := []string{"peers", "vllm", "check", "test FRESH=1", "release RELEASE=-warm", "test-core"}
	for _, failing := range append(steps, "") {
		s := newScratch(t, ".ci/run")
		s.program("id", "echo 1000")
		s.program("make", `echo "$*" >> made; [ "$*" != "`+failing+`" ] || { echo "it is broken"; exit 1; }`)
		if failing == "" {
			s.expect(0, "== make test-core took", "bash", ".ci/run")
		} else {
			s.expect(1, "FAILED   ", "bash", ".ci/run")
			s.expect(1, "it is broken", "bash", ".ci/run")
		}
		made, err := os.ReadFile(filepath.Join(s.dir, "made"))
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			if !strings.Contains("\n"+string(made), "\n"+step+"\n") {
				t.Errorf("make %s fails, and make %s is not run", failing, step)
			}
		}
	}
}
