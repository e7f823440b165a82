package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"meridian/tools/internal/pypackage"
)

// pythonBOM lists what the wheel requires. The wheel holds ranges, not versions, so a component has a version only
// where the lock file of tree pins one.
func pythonBOM(wheel, tree string, stamp Stamp) (*cdx.BOM, error) {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	metadata, err := wheelMetadata(archive, stamp.Version)
	if err != nil {
		return nil, err
	}
	pins, err := readPins(filepath.Join(tree, "python", "requirements.lock"))
	if err != nil {
		return nil, err
	}
	sum, err := sumFile(wheel)
	if err != nil {
		return nil, err
	}
	bom := newBOM(cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: metadata.Name, Version: metadata.Version,
		PackageURL: packageURL("pypi", metadata.Name, metadata.Version),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
	}, stamp)
	components, refs := []cdx.Component{}, []string{}
	for _, requirement := range metadata.Requires {
		component := pythonComponent(requirement, pins)
		components = append(components, component)
		refs = append(refs, component.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: bom.Metadata.Component.BOMRef, Dependencies: &refs}}
	return bom, nil
}

func pythonComponent(requirement pypackage.Requirement, pins pypackage.Pins) cdx.Component {
	version := pins[requirement.Name]
	purl := packageURL("pypi", requirement.Name, version)
	component := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: requirement.Name, Version: version, BOMRef: purl, PackageURL: purl,
		Properties: &[]cdx.Property{{Name: "meridian:requirement", Value: requirement.String()}},
	}
	if requirement.Optional() {
		component.Scope = cdx.ScopeOptional
	}
	return component
}

// readPins reads a lock file; without one nothing is pinned.
func readPins(path string) (pypackage.Pins, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	pins, err := pypackage.ReadPins(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return pins, nil
}
