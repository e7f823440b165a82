// Package pypackage reads what Python distributions say about themselves: core metadata, requirements, pins.
package pypackage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"regexp"
	"strings"
)

// Metadata is the part of a METADATA file that concerns licences and dependencies.
type Metadata struct {
	Name    string
	Version string
	// LicenceExpression is in SPDX's language.
	LicenceExpression string
	// LicenceText is the older free field: an expression, a name, a whole text, or nothing.
	LicenceText string
	Requires    []Requirement
}

// A Requirement is one line of Requires-Dist or of a project's dependencies.
type Requirement struct {
	// Name is canonical: lower case, with single hyphens.
	Name string
	// Versions is the version specifier as written, such as ">=1.0,<2".
	Versions string
	// Marker is the condition after the semicolon, or empty.
	Marker string
}

// ReadMetadata reads the headers of a METADATA file.
func ReadMetadata(r io.Reader) (Metadata, error) {
	header, err := textproto.NewReader(bufio.NewReader(r)).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return Metadata{}, fmt.Errorf("METADATA: %w", err)
	}
	m := Metadata{
		Name: header.Get("Name"), Version: header.Get("Version"),
		LicenceExpression: header.Get("License-Expression"), LicenceText: header.Get("License"),
	}
	if m.Name == "" || m.Version == "" {
		return Metadata{}, fmt.Errorf("METADATA: without Name or Version")
	}
	for _, line := range header.Values("Requires-Dist") {
		requirement, err := ParseRequirement(line)
		if err != nil {
			return Metadata{}, err
		}
		m.Requires = append(m.Requires, requirement)
	}
	return m, nil
}

var requirementForm = regexp.MustCompile(
	`^\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*\(?([^;()@]*)\)?\s*(?:;\s*(.*))?$`)

// ParseRequirement reads a requirement by version. Requirements by URL have no version to check and are refused.
func ParseRequirement(line string) (Requirement, error) {
	parts := requirementForm.FindStringSubmatch(line)
	if parts == nil {
		return Requirement{}, fmt.Errorf("requirement %q: want a name, a version and perhaps a marker", line)
	}
	return Requirement{
		Name: CanonicalName(parts[1]), Versions: strings.TrimSpace(parts[2]), Marker: strings.TrimSpace(parts[3]),
	}, nil
}

var extraMarker = regexp.MustCompile(`\bextra\s*==`)

// Optional reports whether the requirement belongs to an extra, which is not installed unless asked for.
func (r Requirement) Optional() bool { return extraMarker.MatchString(r.Marker) }

var nameSeparators = regexp.MustCompile(`[-_.]+`)

// CanonicalName is the form in which two spellings of one distribution's name are equal.
func CanonicalName(name string) string {
	return strings.ToLower(nameSeparators.ReplaceAllString(name, "-"))
}

// String is the requirement as one would write it.
func (r Requirement) String() string {
	if r.Marker == "" {
		return r.Name + r.Versions
	}
	return r.Name + r.Versions + "; " + r.Marker
}
