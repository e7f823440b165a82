package command

import (
	"context"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	t.Setenv("MERIDIAN_WORD", "inherited")
	dir := t.TempDir()
	got, err := Command{
		Dir: dir, Env: []string{"MERIDIAN_WORD=ours"}, Args: []string{"sh", "-c", "pwd -P; echo $MERIDIAN_WORD; echo noise >&2"},
	}.Line(context.Background())
	if err != nil || !strings.HasSuffix(got, "\nours") || strings.Contains(got, "noise") {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFailureEndsWithTheComplaint(t *testing.T) {
	for script, want := range map[string]string{
		"echo result; echo complaint >&2; exit 3": "exit status 3\ncomplaint",
		"echo only here; exit 3":                  "exit status 3\nonly here",
	} {
		_, err := Command{Args: []string{"sh", "-c", script}}.Output(context.Background())
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v, want one that ends with %q", err, want)
		}
	}
}
