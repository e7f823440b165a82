package pypackage

import (
	"fmt"
	"os"
	"path/filepath"
)

// A Distribution is an installed package: its metadata and where its licence files lie.
type Distribution struct {
	Metadata
	// Dir is its .dist-info directory.
	Dir string
}

// Installed indexes the distributions of a virtual environment by canonical name. It returns os.ErrNotExist when
// there is no environment at that place.
func Installed(venv string) (map[string]Distribution, error) {
	if _, err := os.Stat(venv); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages", "*.dist-info", "METADATA"))
	if err != nil {
		return nil, err
	}
	installed := map[string]Distribution{}
	for _, path := range paths {
		distribution, err := readDistribution(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		installed[CanonicalName(distribution.Name)] = distribution
	}
	return installed, nil
}

func readDistribution(path string) (Distribution, error) {
	file, err := os.Open(path)
	if err != nil {
		return Distribution{}, err
	}
	defer file.Close()
	metadata, err := ReadMetadata(file)
	return Distribution{Metadata: metadata, Dir: filepath.Dir(path)}, err
}
