package main

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"meridian/tools/internal/command"
)

func TestStamp(t *testing.T) {
	dir := repository(t)
	runGit(t, dir, "tag", "v0.2.0")
	write(t, dir, map[string]string{"sub/kept": "changed"})
	source, err := OpenSource(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	stamp, err := source.Stamp("")
	if err != nil {
		t.Fatal(err)
	}
	form := `^-X main\.version=v0\.0\.0-dev\.[0-9a-f]{12}\.dirty -X main\.commit=[0-9a-f]{40} -X main\.date=2001-02-03T02:05:06Z$`
	if !regexp.MustCompile(form).MatchString(stamp.String()) {
		t.Errorf("a changed tree is stamped %s", stamp)
	}
	if !strings.HasSuffix(stamp.ldflags(), stamp.String()) {
		t.Errorf("a release is stamped %s", stamp.ldflags())
	}
}

func TestMakeBuildStampsAsAReleaseDoes(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make: not on PATH")
	}
	source, err := OpenSource(context.Background(), ".")
	if err != nil {
		t.Skip("needs git: this is no checkout")
	}
	stamp, err := source.Stamp("")
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := command.Command{
		Dir: source.Root, Env: []string{"MAKEFLAGS=", "MAKELEVEL="}, Args: []string{"make", "-n", "build"},
	}.Line(context.Background())
	if err != nil || !strings.Contains(recipe, stamp.String()) {
		t.Errorf("%v: make would run\n%s\nwithout %s", err, recipe, stamp)
	}
}
