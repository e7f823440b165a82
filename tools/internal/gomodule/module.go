// Package gomodule lists the Go modules that a package is linked from, with the licences of the code that is linked.
//
//	go list -deps ──▶ packages ──▶ grouped by module ──▶ licence files of the module and of each linked directory
//
// The standard library counts as one module, "std": it is linked into every binary and has a licence like any other.
package gomodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"meridian/tools/internal/command"
	"meridian/tools/internal/licence"
)

// Std is the path under which the standard library is listed.
const Std = "std"

// A Module is a dependency of the main module.
type Module struct {
	Path    string
	Version string
	// Imports are the paths of the modules whose packages this one's linked packages import, sorted; the main
	// module never occurs.
	Imports []string
	Files   []licence.File
}

// Query says what to list.
type Query struct {
	// Dir is a directory in the main module.
	Dir string
	// Patterns are package patterns as for go list.
	Patterns []string
	// Tests includes what the tests of the matched packages need.
	Tests bool
	// GOARCH is the architecture to list for; the system is linux, cgo is off, as for every binary we ship.
	GOARCH string
}

// A Listing is what a set of packages is linked from.
type Listing struct {
	// Modules are sorted by path.
	Modules []Module
	// Direct are the paths of modules that the main module's own linked packages import, sorted.
	Direct []string
}

// listed is what we need of a package in the output of go list -json.
type listed struct {
	ImportPath string
	Dir        string
	Standard   bool
	Imports    []string
	Module     *listedModule
}

type listedModule struct {
	Path    string
	Version string
	Main    bool
	Dir     string
	Replace *listedModule
}

// List runs the query.
func List(ctx context.Context, q Query) (Listing, error) {
	goEnv, err := command.Command{Dir: q.Dir, Args: []string{"go", "env", "-json", "GOROOT", "GOVERSION"}}.Output(ctx)
	if err != nil {
		return Listing{}, err
	}
	var std struct{ GOROOT, GOVERSION string }
	if err := json.Unmarshal(goEnv, &std); err != nil {
		return Listing{}, fmt.Errorf("go env: %w", err)
	}
	packages, err := q.packages(ctx)
	if err != nil {
		return Listing{}, err
	}
	for i := range packages {
		if packages[i].Standard {
			packages[i].Module = &listedModule{Path: Std, Version: std.GOVERSION, Dir: std.GOROOT}
		}
	}
	return group(packages)
}

func (q Query) packages(ctx context.Context) ([]listed, error) {
	args := []string{"go", "list", "-deps", "-json=ImportPath,Dir,Standard,Imports,Module"}
	if q.Tests {
		args = append(args, "-test")
	}
	output, err := command.Command{
		Dir: q.Dir, Env: Environment(q.GOARCH), Args: append(append(args, "--"), q.Patterns...),
	}.Output(ctx)
	if err != nil {
		return nil, err
	}
	var packages []listed
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// Architectures are those we ship for.
var Architectures = []string{"amd64", "arm64"}

// Environment is the setting in which everything we ship is built: linux, static, and independent of the habits of
// the machine.
func Environment(goarch string) []string {
	return []string{
		"GOOS=linux", "GOARCH=" + goarch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
	}
}

// group gathers packages into their modules. A package without a module is the generated main package of a test.
func group(packages []listed) (Listing, error) {
	packages = slices.DeleteFunc(packages, func(p listed) bool { return p.Module == nil })
	modules := map[string]*listedModule{}
	dirs := map[string][]string{}
	for _, p := range packages {
		path := p.Module.Path
		modules[path] = p.Module
		// The one licence below the root of the standard library is that of an object file which only the
		// boringcrypto experiment links; Environment switches experiments off.
		if path != Std {
			dirs[path] = append(dirs[path], p.Dir)
		}
	}
	imports := moduleImports(packages)
	var listing Listing
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		needs := slices.Sorted(maps.Keys(imports[path]))
		if m.Main {
			listing.Direct = needs
			continue
		}
		files, err := licence.Collect(m.Dir, dirs[path])
		if err != nil {
			return Listing{}, fmt.Errorf("licence files of %s: %w", path, err)
		}
		listing.Modules = append(listing.Modules, Module{Path: path, Version: m.version(), Imports: needs, Files: files})
	}
	return listing, nil
}

// moduleImports lifts the imports between packages to their modules, leaving out those of and into the same module
// and those into the main module.
func moduleImports(packages []listed) map[string]map[string]bool {
	owner := map[string]*listedModule{}
	for _, p := range packages {
		owner[p.ImportPath] = p.Module
	}
	imports := map[string]map[string]bool{}
	for _, p := range packages {
		from := p.Module.Path
		for _, imported := range p.Imports {
			to := owner[imported]
			if to == nil || to.Main || to.Path == from {
				continue
			}
			if imports[from] == nil {
				imports[from] = map[string]bool{}
			}
			imports[from][to.Path] = true
		}
	}
	return imports
}

// version is the version of the code that is really linked: that of the replacement, where there is one.
func (m *listedModule) version() string {
	if m.Replace == nil {
		return m.Version
	}
	if m.Replace.Version == "" {
		return "replaced by a local directory"
	}
	return m.Replace.Version
}
