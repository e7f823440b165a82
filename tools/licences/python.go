package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"meridian/tools/internal/licence"
	"meridian/tools/internal/pypackage"
)

var errNotInstalled = errors.New("not installed in .venv")

// pythonSection follows the wheel's requirements through the packages installed in venv.
func pythonSection(pyproject, venv string) (Section, error) {
	section := Section{Title: "Python packages the wheel requires", Dependencies: []Dependency{}}
	requirements, err := wheelRequirements(pyproject)
	if err != nil {
		return Section{}, err
	}
	installed, err := pypackage.Installed(venv)
	if errors.Is(err, fs.ErrNotExist) {
		section.Skipped = "no .venv"
		return section, nil
	}
	if err != nil {
		return Section{}, err
	}
	seen := map[string]bool{}
	for len(requirements) > 0 {
		requirement := requirements[0]
		requirements = requirements[1:]
		distribution, found := installed[requirement.Name]
		// A marker may exclude this interpreter; then pip has left the package out, and so do we.
		if seen[requirement.Name] || requirement.Optional() || (!found && requirement.Marker != "") {
			continue
		}
		seen[requirement.Name] = true
		section.Dependencies = append(section.Dependencies, judgeDistribution(requirement.Name, distribution, found))
		requirements = append(requirements, distribution.Requires...)
	}
	slices.SortFunc(section.Dependencies, func(a, b Dependency) int { return strings.Compare(a.Name, b.Name) })
	return section, nil
}

func wheelRequirements(pyproject string) ([]pypackage.Requirement, error) {
	var content struct {
		Project struct{ Dependencies []string }
	}
	if _, err := toml.DecodeFile(pyproject, &content); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(pyproject), err)
	}
	var requirements []pypackage.Requirement
	for _, line := range content.Project.Dependencies {
		requirement, err := pypackage.ParseRequirement(line)
		if err != nil {
			return nil, err
		}
		requirements = append(requirements, requirement)
	}
	return requirements, nil
}

func judgeDistribution(name string, distribution pypackage.Distribution, found bool) Dependency {
	if !found {
		return newDependency(name, "", "", errNotInstalled)
	}
	if expression := distribution.LicenceExpression; expression != "" {
		return newDependency(name, distribution.Version, expression, judgeExpression(expression))
	}
	if judgeExpression(distribution.LicenceText) == nil {
		return newDependency(name, distribution.Version, distribution.LicenceText, nil)
	}
	ids, err := distributionIDs(distribution.Dir)
	if err == nil {
		err = licence.Judge(ids, licence.Shipped)
	}
	return newDependency(name, distribution.Version, strings.Join(ids, " AND "), err)
}

func judgeExpression(expression string) error {
	terms, err := licence.Parse(expression)
	if err != nil {
		return fmt.Errorf("%w: %w", licence.ErrUnknown, err)
	}
	return terms.Judge(licence.Shipped)
}

// distributionIDs classifies the licence files anywhere under a .dist-info directory.
func distributionIDs(dir string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	files, err := licence.Collect(dir, dirs)
	if err != nil {
		return nil, err
	}
	return licence.IDs(files)
}
