package meridian

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// code is rooms with their types, whose functions can be followed from one to another.
type code struct {
	declared map[string]*ast.FuncDecl // by types.Func.FullName
	info     types.Info
	asks     map[*ast.FuncDecl]bool // what asksOnly found
}

// codeOf reads rooms without their tests. What they import comes compiled, out of Go's cache.
func codeOf(t *testing.T, rooms ...string) *code {
	t.Helper()
	arguments := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}
	for _, room := range rooms {
		arguments = append(arguments, "./"+room)
	}
	list := exec.Command("go", arguments...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports, sources := make(map[string]string), make(map[string][]string)
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if slices.Contains(rooms, roomOf(p.ImportPath)) {
			for _, name := range p.GoFiles {
				sources[p.ImportPath] = append(sources[p.ImportPath], filepath.Join(p.Dir, name))
			}
		}
	}
	files := token.NewFileSet()
	compiled := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	c := newCode()
	for path, names := range sources {
		var parsed []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		c.add(t, path, files, parsed, compiled)
	}
	return c
}

func newCode() *code {
	return &code{
		declared: make(map[string]*ast.FuncDecl), asks: make(map[*ast.FuncDecl]bool),
		info: types.Info{Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)},
	}
}

func (c *code) add(t *testing.T, path string, files *token.FileSet, parsed []*ast.File, compiled types.Importer) {
	t.Helper()
	config := types.Config{Importer: compiled}
	if _, err := config.Check(path, files, parsed, &c.info); err != nil {
		t.Fatal(err)
	}
	for _, f := range parsed {
		for _, d := range f.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
				c.declared[c.info.Defs[f.Name].(*types.Func).FullName()] = f
			}
		}
	}
}

// called is the function that a call is of, if it is one of the rooms'; methods of interfaces
// and values of functions are not.
func (c *code) called(call *ast.CallExpr) (name string) {
	var id *ast.Ident
	switch of := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = of
	case *ast.SelectorExpr:
		id = of.Sel
	}
	of, is := c.info.Uses[id].(*types.Func)
	if !is {
		return ""
	}
	return of.Origin().FullName()
}

// leaves tells whether a block ends by leaving what is around it.
func leaves(block []ast.Stmt) bool {
	if len(block) == 0 {
		return false
	}
	switch block[len(block)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// straight visits what runs of a function where it is not left early.
func straight(body ast.Node, visit func(ast.Node)) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			if n != body && leaves(n.List) {
				return false
			}
		case *ast.FuncLit:
			straight(n.Body, visit)
			return false
		case *ast.CaseClause:
			if leaves(n.Body) {
				for _, e := range n.List {
					straight(e, visit)
				}
				return false
			}
		}
		if n != nil {
			visit(n)
		}
		return true
	})
}

// What is met most often is met under few names: a request on its way from HTTP to the engine, a ticket on its way from the door to the
// machine that asks for its cache. Who adds a step takes another away, or says here why it is worth a name.
func TestFewNamesAreMet(t *testing.T) {
	c := codeOf(t, "serve/gateway", "serve/gateway/edge", "serve/gateway/request", "serve/gateway/upstream", "serve/openai",
		"serve/doorserver", "serve/door", "move/transceiver", "move/transceiver/handoff", "member/trust")
	for _, w := range []struct {
		what  string
		limit int
		names []string
		by    string // which is met, or the way was lost
	}{
		{"a request from HTTP to the engine", 15, c.handedOn(t, "(*meridian/serve/gateway.Gateway).generate", "r"), "(*meridian/serve/gateway/edge.Admission).ReadBody r"},
		{
			"an accepted ticket at the door", 12, c.entered(t, "(*meridian/serve/doorserver.conn).accept", "(*meridian/move/transceiver.Transceiver).step"),
			"(*meridian/move/transceiver/handoff.DestinationHome).Accept",
		},
	} {
		met := strings.Join(w.names, "\n\t")
		t.Logf("%s passes %d names:\n\t%s", w.what, len(w.names), met)
		if len(w.names) > w.limit {
			t.Errorf("%s passes %d names, at most %d:\n\t%s", w.what, len(w.names), w.limit, met)
		}
		if !slices.Contains(w.names, w.by) {
			t.Errorf("%s does not pass %s any more, but\n\t%s", w.what, w.by, met)
		}
	}
}

// handedOn is the names under which a parameter's value is known: the parameter itself, and, of every function of the rooms that is given
// it, wherever that is called, the parameter or receiver that takes it; of each of these likewise. A variable or a field that it is put
// into is a name, too, and a variable is followed.
func (c *code) handedOn(t *testing.T, from, parameter string) (names []string) {
	t.Helper()
	var holders []types.Object
	in := make(map[types.Object]string)
	hold := func(id *ast.Ident, function string) {
		if of := c.objectOf(id); id.Name != "_" && in[of] == "" {
			in[of] = function
			holders, names = append(holders, of), append(names, function+" "+id.Name)
		}
	}
	f := c.declared[from]
	if f == nil {
		t.Fatalf("%s is not there any more: the way begins elsewhere now", from)
	}
	for _, id := range parametersOf(f) {
		if id.Name == parameter {
			hold(id, from)
		}
	}
	for len(holders) > 0 {
		of := holders[0]
		holders = holders[1:]
		is := func(e ast.Expr) bool {
			id, isName := ast.Unparen(e).(*ast.Ident)
			return isName && c.info.Uses[id] == of
		}
		ast.Inspect(c.declared[in[of]].Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name := c.called(n)
				taker := c.declared[name]
				if taker == nil {
					break
				}
				if s, selects := n.Fun.(*ast.SelectorExpr); selects && taker.Recv != nil && len(taker.Recv.List[0].Names) > 0 && is(s.X) {
					hold(taker.Recv.List[0].Names[0], name)
				}
				for i, argument := range n.Args {
					if takes := parametersOf(taker); is(argument) && len(takes) > 0 {
						hold(takes[min(i, len(takes)-1)], name)
					}
				}
			case *ast.AssignStmt:
				for i, value := range n.Rhs {
					if len(n.Lhs) != len(n.Rhs) || !is(value) {
						continue
					}
					switch to := n.Lhs[i].(type) {
					case *ast.Ident:
						hold(to, in[of])
					default:
						names = append(names, in[of]+" "+types.ExprString(to))
					}
				}
			case *ast.KeyValueExpr:
				if is(n.Value) {
					names = append(names, in[of]+" "+types.ExprString(n.Key))
				}
			}
			return true
		})
	}
	return names
}

func parametersOf(f *ast.FuncDecl) (names []*ast.Ident) {
	for _, p := range f.Type.Params.List {
		names = append(names, p.Names...)
	}
	return names
}

// entered is the functions of the rooms that a reader enters who opens one and follows every call on the straight way, each once, in the
// order in which they are met:
//
//   - a block that ends with return, break or continue is not on the way: there something is refused, or is another case;
//   - a parser, whose name begins with Parse or Open, counts, and is not followed;
//   - a question does not count: a function that returns something that is neither an error nor a problem, assigns to nothing but its own
//     variables, and calls nothing of the rooms but questions;
//   - the way ends at the effects: what returns nothing but effects does not count, and end, which has them done, counts and is not followed.
func (c *code) entered(t *testing.T, from, end string) (names []string) {
	if c.declared[from] == nil || c.declared[end] == nil {
		t.Fatalf("%s or %s is not there any more: the way begins or ends elsewhere now", from, end)
	}
	var enter func(name string)
	enter = func(name string) {
		f := c.declared[name]
		if f == nil || slices.Contains(names, name) {
			return
		}
		parses := strings.HasPrefix(f.Name.Name, "Parse") || strings.HasPrefix(f.Name.Name, "Open")
		if !parses && (c.asksOnly(f) || c.answers(f, "[]meridian/move/transceiver/handoff.Effect")) {
			return
		}
		if names = append(names, name); parses || name == end {
			return
		}
		straight(f.Body, func(n ast.Node) {
			if call, is := n.(*ast.CallExpr); is {
				enter(c.called(call))
			}
		})
	}
	enter(from)
	return names
}

// answers tells whether a function has one result, of a type.
func (c *code) answers(f *ast.FuncDecl, typ string) bool {
	results := c.info.Defs[f.Name].(*types.Func).Signature().Results()
	return results.Len() == 1 && results.At(0).Type().String() == typ
}

// asksOnly tells whether a function is a question.
func (c *code) asksOnly(f *ast.FuncDecl) (asks bool) {
	if known, is := c.asks[f]; is {
		return known
	}
	c.asks[f] = false // of what calls itself
	defer func() { c.asks[f] = asks }()
	results := c.info.Defs[f.Name].(*types.Func).Signature().Results()
	for i := range results.Len() {
		switch results.At(i).Type().String() {
		case "error", "*meridian/serve/door.Problem":
			return false
		}
	}
	asks = results.Len() > 0
	own := func(e ast.Expr) bool {
		id, is := ast.Unparen(e).(*ast.Ident)
		return is && (id.Name == "_" || f.Pos() <= c.objectOf(id).Pos() && c.objectOf(id).Pos() < f.End())
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				asks = asks && own(to)
			}
		case *ast.IncDecStmt:
			asks = asks && own(n.X)
		case *ast.CallExpr:
			if called := c.declared[c.called(n)]; called != nil {
				asks = asks && c.asksOnly(called)
			}
		}
		return asks
	})
	return asks
}

func (c *code) objectOf(id *ast.Ident) types.Object {
	if of := c.info.Defs[id]; of != nil {
		return of
	}
	return c.info.Uses[id]
}

// What is met is seen, and what is not on the way is not.
func TestNamesAreSeen(t *testing.T) {
	const source = `package p
type held struct{ kept int }
func way(r int, h *held) error {
	if err := refuses(); err != nil {
		return explained(err)
	}
	switch {
	case asks(r):
		return another(r)
	default:
		step(func() { h.taken(r) })
	}
	q := r
	_ = held{kept: q}
	h.kept = r
	OpenBoth(r, q)
	return nil
}
func refuses() error { return nil }
func explained(err error) error { return err }
func another(r int) error { return nil }
func asks(r int) bool { return !no(r) }
func no(r int) bool { return r == 0 }
func step(f func()) { inside(); f() }
func inside() {}
func (h *held) taken(n int) int { h.kept = n; return n }
func OpenBoth(a, b int) { inside() }
`
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	c := newCode()
	c.add(t, "p", files, []*ast.File{f}, nil)
	if got, want := c.entered(t, "p.way", "p.step"), []string{"p.way", "p.refuses", "p.step", "(*p.held).taken", "p.OpenBoth"}; !slices.Equal(got, want) {
		t.Errorf("entered %q, want %q", got, want)
	}
	want := []string{
		"p.way r", "p.asks r", "p.another r", "(*p.held).taken n", "p.way q", "p.way h.kept", "p.OpenBoth a", "p.no r", "(*p.held).taken h.kept", "p.way kept",
		"p.OpenBoth b",
	}
	if got := c.handedOn(t, "p.way", "r"); !slices.Equal(got, want) {
		t.Errorf("handed on to %q, want %q", got, want)
	}
}
