package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"meridian/tools/internal/gomodule"
)

// A Build makes all artefacts of one version. It is the same for both builds of a release.
type Build struct {
	Stamp Stamp
	Dirty bool
	// Python is the interpreter that has hatchling.
	Python string
	// Tools are the versions of what the build uses.
	Tools map[string]string
	Say   func(format string, args ...any)
}

// A Site is where one build happens.
type Site struct {
	// Tree is a copy of the sources, and is changed by the build.
	Tree string
	// Binaries and Artefacts are empty directories; only what is in Artefacts is released.
	Binaries, Artefacts string
	// Cache is the compiler's cache; empty means that of the user.
	Cache string
}

// Run builds everything and returns the sums of all artefacts, which are also in SHA256SUMS beside them.
func (b *Build) Run(ctx context.Context, site Site) (Sums, error) {
	for _, goarch := range gomodule.Architectures {
		if err := b.buildFor(ctx, site, goarch); err != nil {
			return nil, fmt.Errorf("linux/%s: %w", goarch, err)
		}
	}
	if err := b.buildPython(ctx, site); err != nil {
		return nil, err
	}
	subjects, err := sumDir(site.Artefacts)
	if err != nil {
		return nil, err
	}
	if err := writeStatement(filepath.Join(site.Artefacts, b.name(".provenance.json")), newStatement(b, subjects)); err != nil {
		return nil, err
	}
	sums, err := sumDir(site.Artefacts)
	if err != nil {
		return nil, err
	}
	return sums, os.WriteFile(filepath.Join(site.Artefacts, checksumsName), []byte(sums.String()), 0o644)
}

func (b *Build) name(suffix string) string { return "meridian_" + b.Stamp.Version.String() + suffix }

func (b *Build) buildFor(ctx context.Context, site Site, goarch string) error {
	entries, err := documents(site.Tree)
	if err != nil {
		return err
	}
	b.Say("linux/%s: compiling", goarch)
	binary := filepath.Join(site.Binaries, "meridian_"+goarch)
	if err := buildBinary(ctx, site.Tree, goarch, binary, site.Cache, b.Stamp); err != nil {
		return err
	}
	if isNative(goarch) {
		if err := checkRuns(ctx, binary, b.Stamp.Version); err != nil {
			return err
		}
		b.Say("linux/%s binary: static, and says it is %s", goarch, b.Stamp.Version)
	} else {
		b.Say("linux/%s binary: static, not run on this machine", goarch)
	}
	listing, err := gomodule.List(ctx, gomodule.Query{Dir: site.Tree, Patterns: []string{program}, GOARCH: goarch})
	if err != nil {
		return err
	}
	bom, err := goBOM(binary, goarch, listing, b.Stamp)
	if err != nil {
		return err
	}
	name := b.name("_linux_" + goarch)
	if err := writeBOM(filepath.Join(site.Artefacts, name+".cdx.json"), bom); err != nil {
		return err
	}
	entries = append(entries,
		Entry{Name: "meridian", From: binary, Executable: true},
		Entry{Name: "THIRD-PARTY-LICENSES.txt", Text: thirdPartyLicences(listing.Modules)})
	b.Say("linux/%s archive: %d files, %d modules in its bill of materials", goarch, len(entries), len(listing.Modules))
	return writeArchive(filepath.Join(site.Artefacts, name+".tar.gz"), name, entries, b.Stamp.Time)
}

// documents are the files of an archive that lie in the tree.
func documents(tree string) ([]Entry, error) {
	names := []string{"LICENSE", "README.md", "CHANGELOG.md"}
	headers, err := fs.Glob(os.DirFS(tree), "include/meridian/*.hpp")
	if err != nil {
		return nil, err
	}
	if len(headers) == 0 {
		return nil, fmt.Errorf("there is no C++ header in include/meridian; every archive holds them")
	}
	var entries []Entry
	for _, name := range append(names, headers...) {
		path := filepath.Join(tree, name)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("there is no %s; every archive holds one: %w", name, err)
		}
		entries = append(entries, Entry{Name: name, From: path})
	}
	return entries, nil
}

func (b *Build) buildPython(ctx context.Context, site Site) error {
	wheel, err := buildWheel(ctx, b.Python, site.Tree, site.Artefacts, b.Stamp)
	if err != nil {
		return err
	}
	bom, err := pythonBOM(filepath.Join(site.Artefacts, wheel), site.Tree, b.Stamp)
	if err != nil {
		return err
	}
	b.Say("wheel: %s", wheel)
	return writeBOM(filepath.Join(site.Artefacts, b.name("_python.cdx.json")), bom)
}
