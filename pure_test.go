package meridian

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// concurrency names what a file has of goroutines and channels.
func concurrency(f *ast.File) []string {
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, "a go statement")
		case *ast.ChanType:
			found = append(found, "a channel")
		case *ast.SelectStmt:
			found = append(found, "a select statement")
		case *ast.SelectorExpr:
			if n.Sel.Name == "Parallel" {
				found = append(found, "a parallel test")
			}
		}
		return true
	})
	return found
}

func TestPureRoomsHaveNoGoroutines(t *testing.T) {
	files := parsed(t, false)
	for name, r := range rooms {
		if !r.pure {
			continue
		}
		if len(files[name]) == 0 {
			t.Errorf("no files of the pure room %s were found", name)
		}
		for _, f := range files[name] {
			for _, found := range concurrency(f) {
				t.Errorf("%s is pure, but has %s", name, found)
			}
		}
	}
}

// The race detector has nothing to see in pure rooms whose tests start no
// goroutine, and the test summary runs them without it.
func TestUnracedRooms(t *testing.T) {
	const list = "tools/testsummary/unraced.txt"
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	files := parsed(t, true)
	var quiet []string
	for name, r := range rooms {
		if r.pure && !slices.ContainsFunc(files[name], func(f *ast.File) bool { return len(concurrency(f)) > 0 }) {
			quiet = append(quiet, name)
		}
	}
	slices.Sort(quiet)
	if want := strings.Join(quiet, "\n") + "\n"; string(text) != want {
		t.Errorf("%s is\n%s\nbut the pure rooms without concurrent tests are\n%s", list, text, want)
	}
}

func TestConcurrencyIsSeen(t *testing.T) {
	for source, want := range map[string]string{
		"func f() { go f() }":           "a go statement",
		"type t struct{ c <-chan int }": "a channel",
		"func f() { select {} }":        "a select statement",
		"func f(t T) { t.Parallel() }":  "a parallel test",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", "package p\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := concurrency(f); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: found %v, want %s", source, got, want)
		}
	}
}
