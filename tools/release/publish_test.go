package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestPublishReplacesAnEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"built/new.tar.gz": "n", "built/SHA256SUMS": "00  new.tar.gz\n",
		"deep/dist/old.tar.gz": "o", "deep/dist/SHA256SUMS": "00  old.tar.gz\n",
	})
	from := filepath.Join(dir, "built")
	for _, out := range []string{filepath.Join(dir, "deep", "dist"), filepath.Join(dir, "fresh", "dist")} {
		if err := publish(from, out); err != nil {
			t.Fatal(err)
		}
		if got, want := tree(t, filepath.Dir(out)), []string{"dist/SHA256SUMS", "dist/new.tar.gz"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s holds %q, want %q", filepath.Dir(out), got, want)
		}
	}
}

func TestPublishRefusesToDeleteWhatItDidNotMake(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no sums":      {"dist/thesis.tex": "t"},
		"beside a sum": {"dist/old.tar.gz": "o", "dist/SHA256SUMS": "00  old.tar.gz\n", "dist/thesis.tex": "t"},
	} {
		dir := t.TempDir()
		write(t, dir, files)
		write(t, dir, map[string]string{"built/SHA256SUMS": ""})
		before := tree(t, dir)
		err := publish(filepath.Join(dir, "built"), filepath.Join(dir, "dist"))
		if err == nil || !strings.Contains(err.Error(), "thesis.tex") {
			t.Errorf("%s: %v", name, err)
		}
		if after := tree(t, dir); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the directory went from %q to %q", name, before, after)
		}
	}
}

func TestPublishKeepsTheOldReleaseWhenItFails(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"dist/old.tar.gz": "o", "dist/SHA256SUMS": "00  old.tar.gz\n"})
	if err := publish(filepath.Join(dir, "nothing built"), filepath.Join(dir, "dist")); err == nil {
		t.Error("no error")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || len(tree(t, filepath.Join(dir, "dist"))) != 2 {
		t.Errorf("left %v, %v", entries, err)
	}
}
