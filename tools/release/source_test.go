package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"meridian/tools/internal/command"
)

// Inside a git hook these variables point at the repository of the hook, where no test may write.
func TestMain(m *testing.M) {
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{".gitignore": "/ignored\n", "ignored": "x", "sub/kept": "x", "gone": "x"})
	runGit(t, dir, "init", "--quiet")
	runGit(t, dir, "add", "--all")
	runGit(t, dir, "commit", "--quiet", "--message", "one")
	return dir
}

func runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	_, err := command.Command{
		Dir: dir, Args: append([]string{"git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"}, args...),
		Env: []string{"GIT_COMMITTER_DATE=2001-02-03T04:05:06+02:00", "GIT_CONFIG_GLOBAL=/dev/null"},
	}.Output(context.Background())
	if err != nil {
		t.Fatal(err)
	}
}

func TestSourceVersion(t *testing.T) {
	dir := repository(t)
	version := func(asked string) string {
		t.Helper()
		source, err := OpenSource(context.Background(), filepath.Join(dir, "sub"))
		if err != nil {
			t.Fatal(err)
		}
		if want := time.Date(2001, 2, 3, 2, 5, 6, 0, time.UTC); !source.Time.Equal(want) || source.Time.Location() != time.UTC {
			t.Errorf("time is %v, want %v", source.Time, want)
		}
		version, err := source.Version(asked)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(version.String(), source.Commit[:12], "COMMIT")
	}
	expect := func(asked, want string) {
		t.Helper()
		if got := version(asked); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
	expect("", "v0.0.0-dev.COMMIT")
	runGit(t, dir, "tag", "unrelated")
	expect("", "v0.0.0-dev.COMMIT")
	runGit(t, dir, "tag", "v0.2.0-rc.1")
	expect("", "v0.2.0-rc.1")
	expect("v7.0.0", "v7.0.0")
	write(t, dir, map[string]string{"ignored": "changed"})
	expect("", "v0.2.0-rc.1")
	write(t, dir, map[string]string{"new": "x"})
	expect("", "v0.0.0-dev.COMMIT.dirty")
	expect("v7.0.0", "v7.0.0")
}

func TestSourceRefusesABadTag(t *testing.T) {
	dir := repository(t)
	runGit(t, dir, "tag", "v1-final")
	source, err := OpenSource(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := source.Version(""); err == nil {
		t.Errorf("version is %v", version)
	}
}

func TestOpenSourceNeedsACommit(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	if source, err := OpenSource(context.Background(), dir); err == nil {
		t.Errorf("outside of git: %+v", source)
	}
	runGit(t, dir, "init", "--quiet")
	if source, err := OpenSource(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "commit first") {
		t.Errorf("before the first commit: %+v, %v", source, err)
	}
}

func TestExportLeavesOutWhatGitIgnores(t *testing.T) {
	dir := repository(t)
	write(t, dir, map[string]string{"new file": "x"})
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "new file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kept", filepath.Join(dir, "sub", "link")); err != nil {
		t.Fatal(err)
	}
	source, err := OpenSource(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := source.Export(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	if got, want := tree(t, out), []string{".gitignore", "new file", "sub/kept", "sub/link"}; !reflect.DeepEqual(got, want) {
		t.Errorf("exported %q, want %q", got, want)
	}
	if target, err := os.Readlink(filepath.Join(out, "sub", "link")); err != nil || target != "kept" {
		t.Errorf("link to %q, %v", target, err)
	}
	if info, err := os.Stat(filepath.Join(out, "new file")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("executable bit lost: %v, %v", info, err)
	}
}
