package main

import (
	"fmt"
	"regexp"
)

// A Version is the one name that binary, wheel and documents of a release share. It is a semantic version with a "v".
type Version struct {
	text   string
	pep440 string
}

const versionForms = "want v1.2.3, v1.2.3-alpha.4, v1.2.3-beta.4 or v1.2.3-rc.4"

var (
	taggedForm = regexp.MustCompile(
		`^v((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))(?:-(alpha|beta|rc)\.(0|[1-9]\d*))?$`)
	pep440Stage = map[string]string{"": "", "alpha": "a", "beta": "b", "rc": "rc"}
)

// ParseVersion reads the name of a tag. Other forms of semantic versions are refused: they have no counterpart in
// PEP 440 that sorts the same way.
func ParseVersion(tag string) (Version, error) {
	parts := taggedForm.FindStringSubmatch(tag)
	if parts == nil {
		return Version{}, fmt.Errorf("version %q: %s", tag, versionForms)
	}
	return Version{text: tag, pep440: parts[1] + pep440Stage[parts[2]] + parts[3]}, nil
}

// DevVersion names a build of a commit without a tag, or of a tree that differs from its commit.
func DevVersion(commit string, dirty bool) Version {
	short := commit[:12]
	v := Version{text: "v0.0.0-dev." + short, pep440: "0.0.0.dev0+g" + short}
	if dirty {
		v.text += ".dirty"
		v.pep440 += ".dirty"
	}
	return v
}

func (v Version) String() string { return v.text }

// PEP440 is the same version as Python writes it.
func (v Version) PEP440() string { return v.pep440 }
