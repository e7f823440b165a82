package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"meridian/tools/internal/gomodule"
	"meridian/tools/internal/licence"
)

// goSections lists what is linked into program on any architecture, and what only the tests of the module need.
func goSections(ctx context.Context, root, program string) (linked, tests Section, err error) {
	shipped, err := listModules(ctx, gomodule.Query{Dir: root, Patterns: []string{program}})
	if err != nil {
		return Section{}, Section{}, err
	}
	tested, err := listModules(ctx, gomodule.Query{Dir: root, Patterns: []string{program, "./..."}, Tests: true})
	if err != nil {
		return Section{}, Section{}, err
	}
	for path := range shipped {
		delete(tested, path)
	}
	linked = goSection("Go modules linked into "+program, shipped, licence.Shipped)
	tests = goSection("Go modules that only tests and other packages need", tested, licence.TestOnly)
	return linked, tests, nil
}

func listModules(ctx context.Context, query gomodule.Query) (map[string]gomodule.Module, error) {
	modules := map[string]gomodule.Module{}
	for _, goarch := range gomodule.Architectures {
		query.GOARCH = goarch
		listing, err := gomodule.List(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, m := range listing.Modules {
			m.Files = append(m.Files, modules[m.Path].Files...)
			modules[m.Path] = m
		}
	}
	return modules, nil
}

func goSection(title string, modules map[string]gomodule.Module, use licence.Use) Section {
	section := Section{Title: title, Dependencies: []Dependency{}}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		module := modules[path]
		ids, err := licence.IDs(module.Files)
		if err == nil {
			err = licence.Judge(ids, use)
		}
		section.Dependencies = append(section.Dependencies,
			newDependency(path, module.Version, strings.Join(ids, " AND "), err))
	}
	return section
}
