package bench

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestOpened(t *testing.T) {
	var o Opened
	var closed []string
	failed := errors.New("it failed")
	for _, name := range []string{"first", "second"} {
		o.Closes(func(context.Context) error {
			closed = append(closed, name)
			return errors.New(name)
		})
	}
	dir, err := o.Folder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var none error
	if o.Unless(t.Context(), &none); none != nil || len(closed) > 0 {
		t.Errorf("without an error %v was closed: %v", closed, none)
	}
	err = failed
	o.Unless(t.Context(), &err)
	if !errors.Is(err, failed) || !strings.Contains(err.Error(), "second\nfirst") || !slices.Equal(closed, []string{"second", "first"}) {
		t.Errorf("closed: %v, %v", closed, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
	if err := o.Close(t.Context()); err != nil || len(closed) != 2 {
		t.Errorf("closed once more: %v, %v", closed, err)
	}
}

// A server does not read its input: it ends because it is asked to.
func TestOpenedServer(t *testing.T) {
	var o Opened
	p, err := o.Server("a server", []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.01; done"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	visits := 0
	if err := p.Listens(t.Context(), func(context.Context) error {
		if visits++; visits < 3 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || visits != 3 {
		t.Errorf("after %d visits: %v", visits, err)
	}
	if err := o.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Listens(t.Context(), func(context.Context) error { return errors.New("refused") }); !errors.Is(err, ErrGone) {
		t.Errorf("of one that has ended: %v", err)
	}
}
