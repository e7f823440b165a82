package meridian

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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
			switch n.Sel.Name {
			case "Parallel", "RunParallel":
				found = append(found, "a parallel test")
			case "Go":
				found = append(found, "a group of goroutines")
			case "AfterFunc":
				found = append(found, "a timer that calls")
			case "AddCleanup", "SetFinalizer":
				found = append(found, "what the garbage collector calls")
			}
		case *ast.ImportSpec:
			switch path := strings.Trim(n.Path.Value, `"`); {
			case path == "net" || strings.HasPrefix(path, "net/http"):
				found = append(found, "a server or a client of "+path)
			case path == "testing/synctest" || path == "github.com/anishathalye/porcupine": // which checks in goroutines of its own
				found = append(found, "goroutines of "+path)
			}
		}
		return true
	})
	return found
}

func TestPureRoomsHaveNoGoroutines(t *testing.T) {
	files := parsed(t, false)
	for name, r := range rooms {
		if !r.Pure {
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

// The race detector has nothing to see where no goroutine is started: in pure rooms
// whose tests start none, and in rooms that, with their tests and all that they
// import, start none. The test summary runs them without it.
func TestUnracedRooms(t *testing.T) {
	const list = "tools/testsummary/unraced.txt"
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	concurrent := make(map[string]bool)
	for name, files := range parsed(t, false) {
		concurrent[name] = slices.ContainsFunc(files, isConcurrent)
	}
	imports := make(map[string][]string) // of rooms, by room
	reached := make(map[string][]string) // and of its tests
	for _, p := range listPackages(t) {
		name := roomOf(p.ImportPath)
		imports[name] = append(imports[name], ownRooms(p.Imports)...)
		reached[name] = append(reached[name], ownRooms(slices.Concat(p.Imports, p.TestImports, p.XTestImports))...)
	}
	files := parsed(t, true)
	var quiet []string
	for name, r := range rooms {
		if name != "" && !slices.ContainsFunc(files[name], isConcurrent) && (r.Pure || !anyReached(imports, reached[name], concurrent)) {
			quiet = append(quiet, name)
		}
	}
	slices.Sort(quiet)
	if want := strings.Join(quiet, "\n") + "\n"; string(text) != want {
		t.Errorf("%s is\n%s\nbut the rooms in which the race detector has nothing to see are\n%s", list, text, want)
	}
}

func isConcurrent(f *ast.File) bool { return len(concurrency(f)) > 0 }

func roomOf(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, "meridian"), "/")
}

// ownRooms are those of the imports that are rooms of this tree.
func ownRooms(imports []string) []string {
	var own []string
	for _, path := range imports {
		if _, listed := rooms[roomOf(path)]; listed && strings.HasPrefix(path, "meridian") {
			own = append(own, roomOf(path))
		}
	}
	return own
}

// anyReached tells whether one of the rooms, or of what they import, is marked.
func anyReached(imports map[string][]string, from []string, marked map[string]bool) bool {
	seen := make(map[string]bool)
	for len(from) > 0 {
		name := from[len(from)-1]
		from = from[:len(from)-1]
		if marked[name] {
			return true
		}
		if !seen[name] {
			seen[name] = true
			from = append(from, imports[name]...)
		}
	}
	return false
}

func TestConcurrencyIsSeen(t *testing.T) {
	for source, want := range map[string]string{
		"func f() { go f() }":           "a go statement",
		"type t struct{ c <-chan int }": "a channel",
		"func f() { select {} }":        "a select statement",
		"func f(t T) { t.Parallel() }":  "a parallel test",
		"func f(w W) { w.Go(f) }":       "a group of goroutines",
		"func f() { time.AfterFunc() }": "a timer that calls",
		`import "net/http/httptest"`:    "a server or a client of net/http/httptest",
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

// What is simulated takes time from the clock it is given. A call of the real
// one would make a seed tell something else each time, and would judge a
// deadline by a clock that can jump.
func TestNoRealClock(t *testing.T) {
	real := []string{"Now", "Since", "Until", "After", "Tick", "NewTimer", "NewTicker", "Sleep", "AfterFunc"}
	excepted := []string{
		"move/fabric/clock.go", "prove/sim/seeds.go",
		"move/agent/lock.go",                                  // waits for another process to end
		"keep/store/disk", "keep/store/s3", "keep/store/tier", // they wait for devices and servers, which no seed has
	}
	for _, pattern := range []string{"move/agent/*.go", "move/fabric/*.go", "move/fabric/link/*.go", "move/fabric/session/*.go", "move/transceiver/handoff/*.go", "move/transceiver/handoff/handoffsim/*.go", "keep/store/*/*.go", "prove/sim/*.go", "internal/seeded/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") || slices.Contains(excepted, path) || slices.Contains(excepted, filepath.Dir(path)) {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, is := n.(*ast.SelectorExpr); is {
					if of, is := call.X.(*ast.Ident); is && of.Name == "time" && slices.Contains(real, call.Sel.Name) {
						t.Errorf("%s calls time.%s", path, call.Sel.Name)
					}
				}
				return true
			})
		}
	}
}
