package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"meridian/tools/internal/gomodule"
)

// goBOM lists what the binary itself says it was linked from; listing adds licences and who imports whom, and must
// agree with the binary.
func goBOM(binary, goarch string, listing gomodule.Listing, stamp Stamp) (*cdx.BOM, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum, err := sumFile(binary)
	if err != nil {
		return nil, err
	}
	linked := map[string]*debug.Module{gomodule.Std: {Path: gomodule.Std, Version: info.GoVersion}}
	for _, dependency := range info.Deps {
		linked[dependency.Path] = dependency
	}
	if len(linked) != len(listing.Modules) {
		return nil, fmt.Errorf("%s is linked from %d modules, go list names %d", binary, len(linked), len(listing.Modules))
	}
	bom := newBOM(cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: "meridian", Version: stamp.Version.String(),
		PackageURL: packageURL("golang", "meridian", stamp.Version.String()) + "?goarch=" + goarch + "&goos=linux",
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
	}, stamp)
	refs := map[string]string{}
	components := []cdx.Component{}
	for _, module := range listing.Modules {
		dependency := linked[module.Path]
		if dependency == nil {
			return nil, fmt.Errorf("go list names %s, which %s is not linked from", module.Path, binary)
		}
		component, err := goComponent(dependency, module)
		if err != nil {
			return nil, err
		}
		refs[module.Path] = component.BOMRef
		components = append(components, component)
	}
	bom.Components = &components
	bom.Dependencies = goDependencies(bom.Metadata.Component.BOMRef, listing, refs)
	return bom, nil
}

func goComponent(linked *debug.Module, module gomodule.Module) (cdx.Component, error) {
	if linked.Replace != nil {
		linked = linked.Replace
	}
	ids, err := licensesOf(module)
	if err != nil {
		return cdx.Component{}, err
	}
	purl := packageURL("golang", linked.Path, linked.Version)
	component := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: linked.Path, Version: linked.Version,
		BOMRef: purl, PackageURL: purl, Licenses: licenseChoice(ids),
	}
	if linked.Sum != "" {
		hash, err := goSumHash(linked.Sum)
		if err != nil {
			return cdx.Component{}, fmt.Errorf("%s: %w", linked.Path, err)
		}
		component.Hashes = &[]cdx.Hash{hash}
		component.Properties = &[]cdx.Property{{Name: "meridian:go.sum", Value: linked.Sum}}
	}
	return component, nil
}

// goSumHash turns a line of go.sum into the hash of a component, as other makers of Go SBOMs do. It is a SHA-256 of
// the module's file list, not of a file one could download; the property beside it keeps the original form.
func goSumHash(sum string) (cdx.Hash, error) {
	encoded, found := strings.CutPrefix(sum, "h1:")
	if !found {
		return cdx.Hash{}, fmt.Errorf("go.sum hash %q is not of kind h1", sum)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return cdx.Hash{}, fmt.Errorf("go.sum hash %q: %w", sum, err)
	}
	return cdx.Hash{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}, nil
}

func goDependencies(subject string, listing gomodule.Listing, refs map[string]string) *[]cdx.Dependency {
	refsOf := func(paths []string) *[]string {
		list := []string{}
		for _, path := range paths {
			list = append(list, refs[path])
		}
		return &list
	}
	dependencies := []cdx.Dependency{{Ref: subject, Dependencies: refsOf(listing.Direct)}}
	for _, module := range listing.Modules {
		dependencies = append(dependencies, cdx.Dependency{Ref: refs[module.Path], Dependencies: refsOf(module.Imports)})
	}
	return &dependencies
}
