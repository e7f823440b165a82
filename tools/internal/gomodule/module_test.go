package gomodule

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"meridian/tools/internal/licence"
)

func find(listing Listing, path string) *Module {
	for i := range listing.Modules {
		if listing.Modules[i].Path == path {
			return &listing.Modules[i]
		}
	}
	return nil
}

// The licence checker itself is the specimen: it links one module besides the standard library.
func TestListOfARealPackage(t *testing.T) {
	const toml = "github.com/BurntSushi/toml"
	listing, err := List(context.Background(), Query{Dir: "../..", Patterns: []string{"./licences"}, GOARCH: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(listing.Direct, toml) || !slices.Contains(listing.Direct, Std) {
		t.Errorf("direct imports are %v", listing.Direct)
	}
	for path, want := range map[string]string{toml: "MIT", Std: "BSD-3-Clause"} {
		module := find(listing, path)
		if module == nil {
			t.Errorf("%s is not listed", path)
			continue
		}
		ids, err := licence.IDs(module.Files)
		if err != nil || !reflect.DeepEqual(ids, []string{want}) || module.Version == "" {
			t.Errorf("%s %s: licences %v, %v; want %s", path, module.Version, ids, err, want)
		}
	}
	if find(listing, "github.com/CycloneDX/cyclonedx-go") != nil {
		t.Error("a module of the go.mod that the package does not import is listed")
	}
}

func TestListFailsOnAMissingPackage(t *testing.T) {
	if _, err := List(context.Background(), Query{Dir: "../..", Patterns: []string{"./nowhere"}, GOARCH: "amd64"}); err == nil {
		t.Error("no error")
	}
}

func TestGroupLiftsImportsToModules(t *testing.T) {
	dir := t.TempDir()
	own := &listedModule{Path: "own", Main: true, Dir: dir}
	a := &listedModule{Path: "a", Version: "v1.0.0", Dir: dir}
	b := &listedModule{Path: "b", Version: "v1.0.0", Dir: dir, Replace: &listedModule{Path: "c", Version: "v2.0.0"}}
	local := &listedModule{Path: "d", Dir: dir, Replace: &listedModule{Path: "../d"}}
	listing, err := group([]listed{
		{ImportPath: "own/cmd", Dir: dir, Module: own, Imports: []string{"own/kv", "a/x", "unsafe"}},
		{ImportPath: "own/kv", Dir: dir, Module: own, Imports: []string{"d"}},
		{ImportPath: "own/kv.test"},
		{ImportPath: "a/x", Dir: dir, Module: a, Imports: []string{"a/y"}},
		{ImportPath: "a/y", Dir: dir, Module: a, Imports: []string{"b"}},
		{ImportPath: "b", Dir: dir, Module: b},
		{ImportPath: "d", Dir: dir, Module: local},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Listing{Direct: []string{"a", "d"}, Modules: []Module{
		{Path: "a", Version: "v1.0.0", Imports: []string{"b"}},
		{Path: "b", Version: "v2.0.0"},
		{Path: "d", Version: "replaced by a local directory"},
	}}
	if !reflect.DeepEqual(listing, want) {
		t.Errorf("got  %+v\nwant %+v", listing, want)
	}
}
