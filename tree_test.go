// Package meridian holds no code, only tests of the tree itself: the laws of
// the house, and documents held to the code they describe.
package meridian

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"meridian/internal/mutant"
)

const hardLineLimit = 800

// sources lists the files of the tree with one of the suffixes, without what
// is built or installed.
func sources(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && path != "." && d.Name() != ".ci"
		if d.IsDir() && (hidden || slices.Contains([]string{"bin", "dist", "node_modules", "__pycache__"}, d.Name())) {
			return filepath.SkipDir
		}
		if !d.IsDir() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
			files = append(files, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no files end in %v", suffixes)
	}
	return files
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestNoFileIsTooLong(t *testing.T) {
	for _, path := range sources(t, ".go", ".py", ".hpp", ".cpp", ".sh") {
		if strings.HasSuffix(path, ".pb.go") {
			continue
		}
		if lines := bytes.Count(read(t, path), []byte("\n")); lines > hardLineLimit {
			t.Errorf("%s has %d lines; %d is the limit: split it by noun", path, lines, hardLineLimit)
		}
	}
}

// parsed returns the syntax of every Go file by directory.
func parsed(t *testing.T, tests bool) map[string][]*ast.File {
	t.Helper()
	byDirectory := make(map[string][]*ast.File)
	for _, path := range sources(t, ".go") {
		if !tests && strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		directory := filepath.ToSlash(filepath.Dir(path))
		byDirectory[directory] = append(byDirectory[directory], f)
	}
	return byDirectory
}

// screenLines is how long a function of the product may be.
const screenLines = 70

func TestFunctionsFitAScreen(t *testing.T) {
	for _, path := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, isFunction := d.(*ast.FuncDecl)
			if !isFunction {
				continue
			}
			if lines := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; lines > screenLines {
				t.Errorf("%s: %s has %d lines, a screen has %d: split it", path, f.Name.Name, lines, screenLines)
			}
		}
	}
}

func TestEveryPackageHasOneDoc(t *testing.T) {
	for directory, files := range parsed(t, false) {
		docs := 0
		for _, f := range files {
			if f.Doc != nil {
				docs++
			}
		}
		if docs != 1 {
			t.Errorf("package %s has %d package docs; exactly one file says what it owns", directory, docs)
		}
	}
}

func TestNoShelfNames(t *testing.T) {
	for directory := range parsed(t, false) {
		if name := filepath.Base(directory); slices.Contains([]string{"util", "utils", "common", "helpers", "types", "manager", "pkg", "misc"}, name) {
			t.Errorf("%s: a package is named after what it owns, not after a shelf", directory)
		}
	}
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

func TestLinksInDocumentsResolve(t *testing.T) {
	for _, path := range sources(t, ".md") {
		for _, match := range markdownLink.FindAllSubmatch(read(t, path), -1) {
			target := string(match[1])
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, target)
			}
		}
	}
}

// declared returns the names that packages declare at their top level, as
// "room.Name".
func declared(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for directory, files := range parsed(t, false) {
		for _, f := range files {
			for _, name := range topLevel(f) {
				names[directory+"."+name] = true
			}
		}
	}
	return names
}

func topLevel(f *ast.File) []string {
	var names []string
	for _, declaration := range f.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// Every known bug still has its place in the code: without it the simulations
// would not be tested any more.
func TestKnownBugsHaveTheirPlaces(t *testing.T) {
	if _, err := mutant.Overlay(".", t.TempDir()); err != nil {
		t.Error(err)
	}
}

var goName = regexp.MustCompile("`([a-z]+(?:/[a-z]+)*\\.[A-Z][A-Za-z]*)`")

// docs/names.md promises where each foreign name lives with us. What it calls
// planned must not exist yet, so that the page is mended when it arrives.
func TestNamesExist(t *testing.T) {
	exists := declared(t)
	checked := 0
	for line := range strings.Lines(string(read(t, "docs/names.md"))) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 3 {
			continue
		}
		ours := cells[len(cells)-2]
		planned := strings.Contains(ours, "planned")
		for _, match := range goName.FindAllStringSubmatch(ours, -1) {
			checked++
			if exists[match[1]] == planned {
				t.Errorf("docs/names.md: %s exists: %v, planned: %v", match[1], exists[match[1]], planned)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d names were found in docs/names.md", checked)
	}
}

// docs/store.md says of every fault which test shows what is promised.
func TestStoreFailuresAreShown(t *testing.T) {
	shown := 0
	for _, match := range goName.FindAllStringSubmatch(string(read(t, "docs/store.md")), -1) {
		room, test, _ := strings.Cut(match[1], ".")
		if !strings.HasPrefix(test, "Test") {
			continue
		}
		shown++
		files, err := filepath.Glob(filepath.Join(room, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(path string) bool { return bytes.Contains(read(t, path), []byte("func "+test+"(")) }) {
			t.Errorf("docs/store.md names %s, which does not exist", match[1])
		}
	}
	if shown < 10 {
		t.Errorf("docs/store.md names %d tests", shown)
	}
}

// drawing returns the rows of ARCHITECTURE.md's drawing: what is said of each
// wing, and the wings in their order.
func drawing(document string) (rows map[string][]string, order []string) {
	rows = make(map[string][]string)
	_, drawn, _ := strings.Cut(document, "```\n cmd ")
	drawn, _, _ = strings.Cut("cmd "+drawn, "```")
	for line := range strings.Lines(drawn) {
		if words := strings.FieldsFunc(line, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }); len(words) > 0 {
			rows[words[0]] = words[1:]
			order = append(order, words[0])
		}
	}
	return rows, order
}

// ARCHITECTURE.md draws the wings, each on those it leans on, with every room
// that stands in it.
func TestArchitectureDrawsTheWings(t *testing.T) {
	rows, order := drawing(string(read(t, "ARCHITECTURE.md")))
	slices.Reverse(order)
	if want := slices.DeleteFunc(slices.Clone(wings), func(wing string) bool { return wing == "internal" }); !slices.Equal(order, want) {
		t.Errorf("ARCHITECTURE.md draws %v from the ground up, the wings are %v", order, want)
	}
	for name := range rooms {
		wing, room, _ := strings.Cut(name, "/")
		room, _, _ = strings.Cut(room, "/")
		if wing != "internal" && room != "" && !slices.Contains(rows[wing], room) {
			t.Errorf("ARCHITECTURE.md draws %s without %s", wing, room)
		}
	}
}

func TestDrawingIsRead(t *testing.T) {
	rows, order := drawing("x\n\n```\n cmd   c1   the top\n b     b1 ── b2,b3 │ b4\n```\n\nz\n")
	if want := []string{"cmd", "b"}; !slices.Equal(order, want) {
		t.Errorf("read %v, want %v", order, want)
	}
	if want := []string{"b1", "b2", "b3", "b4"}; !slices.Equal(rows["b"], want) {
		t.Errorf("read %v of b, want %v", rows["b"], want)
	}
}

// What is read first is short.
func TestFirstDocumentsAreShort(t *testing.T) {
	for name, limit := range map[string]int{"README.md": 90, "ARCHITECTURE.md": 80} {
		if lines := bytes.Count(read(t, name), []byte("\n")); lines > limit {
			t.Errorf("%s has %d lines; %d is the limit: what is told at length belongs in docs", name, lines, limit)
		}
	}
}
