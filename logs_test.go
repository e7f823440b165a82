package meridian

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	goldenfile "meridian/internal/golden"
)

// logged is one event that some line of the code writes to a log.
type logged struct {
	room, event, level string
	attributes         []string
}

// logCalls are the functions that write an event, with the places of its level, of its
// name and of its first attribute among their arguments. A level in no place is that of
// the function's name, or INFO.
var logCalls = map[string][3]int{
	"Debug": {-1, 0, 1}, "Info": {-1, 0, 1}, "Warn": {-1, 0, 1}, "Error": {-1, 0, 1},
	"Log": {1, 2, 3}, "note": {0, 1, 2}, "remark": {-1, 0, 1}, "eventLine": {2, 3, 4},
}

// isLogger tells a logger by what it is called.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		name := strings.ToLower(e.Name)
		return strings.HasSuffix(name, "logger") || name == "log" || name == "j" || name == "journal" || name == "audit"
	case *ast.SelectorExpr:
		return isLogger(e.Sel)
	case *ast.CallExpr:
		return isLogger(e.Fun)
	}
	return false
}

// text is a text that the code has as it is; "" for what it makes up.
func text(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		if x, y := text(e.X, constants), text(e.Y, constants); x != "" && y != "" {
			return x + y
		}
	case *ast.Ident:
		return constants[e.Name]
	case *ast.SelectorExpr:
		return constants[e.Sel.Name]
	}
	return ""
}

// eventsIn are the events of one file, and what is wrong with the lines that write them.
func eventsIn(name string, file *ast.File, constants map[string]string) (found []logged, odd []string) {
	for _, d := range file.Decls {
		f, isFunction := d.(*ast.FuncDecl)
		if !isFunction {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			if !isCall {
				return true
			}
			at, is := logCalls[calledName(call)]
			if !is || len(call.Args) <= at[1] {
				return true
			}
			if of, isMethod := call.Fun.(*ast.SelectorExpr); isMethod && !isLogger(of.X) {
				return true
			}
			e := logged{room: path.Dir(name), event: text(call.Args[at[1]], constants), level: strings.ToUpper(calledName(call))}
			if e.event == "" {
				if f.Name.Name != "note" && f.Name.Name != "remark" && f.Name.Name != "Words" { // they write what they are given
					odd = append(odd, fmt.Sprintf("%s, in %s: the name of an event is no text as it stands", name, f.Name.Name))
				}
				return true
			}
			switch {
			case at[0] >= 0:
				e.level = levelOf(call.Args[at[0]])
			case calledName(call) == "remark":
				e.level = "INFO"
			}
			e.attributes = attributesOf(f, call, at[2])
			found = append(found, e)
			return true
		})
	}
	return found, odd
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// levelOf is a level of slog's; one that depends is that of what went wrong.
func levelOf(e ast.Expr) string {
	if s, isName := e.(*ast.SelectorExpr); isName && strings.HasPrefix(s.Sel.Name, "Level") {
		return strings.ToUpper(strings.TrimPrefix(s.Sel.Name, "Level"))
	}
	return "INFO or WARN"
}

// attributesOf are the names in the arguments; of arguments that are a list, those in
// the lists that the function makes.
func attributesOf(f *ast.FuncDecl, call *ast.CallExpr, from int) (names []string) {
	every2nd := func(args []ast.Expr) {
		for i := 0; i < len(args); i += 2 {
			if name := text(args[i], nil); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if call.Ellipsis == token.NoPos {
		every2nd(call.Args[min(from, len(call.Args)):])
		return names
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if list, isList := n.Type.(*ast.ArrayType); isList {
				if of, isName := list.Elt.(*ast.Ident); isName && of.Name == "any" {
					every2nd(n.Elts)
				}
			}
		case *ast.CallExpr:
			if calledName(n) == "append" && n.Ellipsis == token.NoPos {
				every2nd(n.Args[1:])
			}
		}
		return true
	})
	return names
}

// constantsIn are texts that have a name.
func constantsIn(file *ast.File, into map[string]string) {
	for _, d := range file.Decls {
		g, isGeneral := d.(*ast.GenDecl)
		if !isGeneral || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			if v := s.(*ast.ValueSpec); len(v.Values) == 1 && ast.IsExported(v.Names[0].Name) && strings.HasSuffix(v.Names[0].Name, "Event") {
				into[v.Names[0].Name] = text(v.Values[0], nil)
			}
		}
	}
}

// Every event that is logged is in docs/logs.md with its attributes, nothing else is,
// and every attribute is one of those that the document explains.
func TestReferenceOfEvents(t *testing.T) {
	files, constants := make(map[string]*ast.File), make(map[string]string)
	for _, name := range sources(t, ".go") {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "tools/") || strings.HasPrefix(name, "internal/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
		constantsIn(file, constants)
	}
	rows := make(map[string]*logged)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		found, odd := eventsIn(name, files[name], constants)
		for _, problem := range odd {
			t.Error(problem)
		}
		for _, e := range found {
			key := e.room + "\x00" + e.event + "\x00" + e.level
			if rows[key] == nil {
				rows[key] = &e
				continue
			}
			for _, a := range e.attributes {
				if !slices.Contains(rows[key].attributes, a) {
					rows[key].attributes = append(rows[key].attributes, a)
				}
			}
		}
	}
	const least = 100
	if len(rows) < least {
		t.Fatalf("%d events are found; they are not seen any more", len(rows))
	}
	_, doc, _ := strings.Cut(string(read(t, "docs/logs.md")), "\n## Attributes\n")
	explained := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(doc, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			explained[strings.Trim(name, "`")] = false
		}
	}
	var table strings.Builder
	table.WriteString("| Room | Level | Event | Attributes |\n|---|---|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		e := rows[key]
		for _, a := range e.attributes {
			if _, known := explained[a]; !known {
				t.Errorf("the event %q of %s has the attribute %q, which docs/logs.md does not explain", e.event, e.room, a)
			}
			explained[a] = true
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", e.room, e.level, e.event, strings.Join(e.attributes, ", "))
	}
	for a, used := range explained {
		if !used {
			t.Errorf("docs/logs.md explains the attribute %q, which no event has", a)
		}
	}
	goldenfile.Section(t, "docs/logs.md", "events", table.String())
}
