package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/internal/require"
)

// plainEnvironment is the environment without settings of the person who runs the tests.
func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MERIDIAN_") })
}

// consoleStep is a line that a document has typed, and what it promises of it.
type consoleStep struct{ typed, promised string }

// consoleSteps are the steps of a document's blocks of one kind, in order.
func consoleSteps(t *testing.T, document, kind string) (steps []consoleStep) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", document))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			typed, promised, _ := strings.Cut(step, "\n")
			steps = append(steps, consoleStep{typed, strings.TrimSpace(promised)})
		}
	}
	return steps
}

// TestDocsGoverning types what docs/governing.md does on a cell that runs, in one shell.
func TestDocsGoverning(t *testing.T) {
	bash := require.Program(t, "bash")
	require.Program(t, "curl")
	const document = "docs/governing.md"
	s := newShell(t)
	up, _ := s.up()
	defer func() {
		_ = up.Process.Signal(os.Interrupt)
		_ = up.Wait()
	}()
	steps := consoleSteps(t, document, "console cell")
	if len(steps) < 7 {
		t.Fatalf("only %d steps were found in %s", len(steps), document)
	}
	// What a running request and counters show changes from run to run; the small cell of
	// tests has another model.
	changing := regexp.MustCompile(`[0-9a-f]{32}|[0-9][0-9.\\]*m?s?\b`)
	phasesFrom := slices.IndexFunc(steps, func(s consoleStep) bool { return strings.Contains(s.typed, "meridian phases") })
	here := strings.NewReplacer("http://127.0.0.1:8080", s.record().Gateway, `"model": "small"`, `"model": "tiny"`, "bin/meridian", s.program)
	const between = "-- next --"
	script := ""
	for _, step := range steps {
		script += here.Replace(step.typed) + "\necho '" + between + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, bash, "-c", script+"kill $!; wait\n:\n")
	shell.Dir, shell.Env = t.TempDir(), append(plainEnvironment(), "MERIDIAN_STATE="+s.state)
	shell.WaitDelay = time.Second
	out, err := shell.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, printed := range strings.SplitN(string(out), between+"\n", len(steps)+1)[:len(steps)] {
		promised := regexp.QuoteMeta(strings.Join(strings.Fields(steps[i].promised), " "))
		if i >= phasesFrom {
			promised = changing.ReplaceAllString(promised, `\S+`)
		}
		if got := strings.Join(strings.Fields(printed), " "); !regexp.MustCompile("^" + promised + "$").MatchString(got) {
			t.Errorf("$ %s\nprints\n%s\n%s promises\n%s", steps[i].typed, printed, document, steps[i].promised)
		}
	}
}

// TestDocsConsole types what console blocks show, in order, and demands what they
// promise. "…" stands for anything to the end of the line.
func TestDocsConsole(t *testing.T) {
	bash := require.Program(t, "bash")
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// testscript.Main makes this test binary act as the command it is named after.
	if err := os.Symlink(self, filepath.Join(bin, "meridian")); err != nil {
		t.Fatal(err)
	}
	for document, least := range map[string]int{"docs/wire.md": 5, "docs/configuration.md": 5} {
		dir := t.TempDir()
		steps, moved := 0, false
		for _, step := range consoleSteps(t, document, "console") {
			typed, promised := step.typed, step.promised
			moved = moved || typed == `cd "$(mktemp -d)"`
			if strings.HasPrefix(typed, "make ") || strings.HasPrefix(typed, "export PATH=") || strings.HasPrefix(typed, "cd ") {
				continue // the test has its own binary and its own directory
			}
			if !moved {
				t.Errorf("%s: $ %s\nis typed in the repository, and leaves its files there", document, typed)
			}
			steps++
			command := exec.Command(bash, "-c", typed)
			command.Dir = dir
			command.Env = append(plainEnvironment(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir)
			out, _ := command.CombinedOutput() // some steps are meant to fail
			pattern := strings.ReplaceAll(regexp.QuoteMeta(promised), "…", "[^\n]*")
			if !regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(string(out))) {
				t.Errorf("$ %s\nprints\n%s\n%s promises\n%s", typed, out, document, promised)
			}
		}
		if steps < least {
			t.Errorf("only %d steps were found in %s", steps, document)
		}
	}
}
