package main

import (
	"archive/zip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"

	"meridian/tools/internal/command"
	"meridian/tools/internal/pypackage"
)

var versionLine = regexp.MustCompile(`(?m)^__version__ = ".*"$`)

// buildWheel stamps the version into tree, which is a copy, and builds the wheel into dir. It returns its file name.
func buildWheel(ctx context.Context, python, tree, dir string, stamp Stamp) (string, error) {
	project := filepath.Join(tree, "python")
	if err := stampVersion(filepath.Join(project, "meridian", "_version.py"), stamp.Version); err != nil {
		return "", err
	}
	// The licence lies at the root of the repository, where hatchling does not look.
	if err := copyFile(filepath.Join(tree, "LICENSE"), filepath.Join(project, "LICENSE")); err != nil {
		return "", err
	}
	_, err := command.Command{
		Dir: project,
		Env: []string{
			"SOURCE_DATE_EPOCH=" + strconv.FormatInt(stamp.Time.Unix(), 10),
			"PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=",
		},
		Args: []string{python, "-m", "hatchling", "build", "-t", "wheel", "-d", dir},
	}.Output(ctx)
	if err != nil {
		return "", fmt.Errorf("building the wheel: %w", err)
	}
	name := "meridian-" + stamp.Version.PEP440() + "-py3-none-any.whl"
	return name, checkWheel(filepath.Join(dir, name), filepath.Join(project, "meridian"), stamp.Version)
}

func stampVersion(file string, version Version) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if found := len(versionLine.FindAll(text, -1)); found != 1 {
		return fmt.Errorf("%s: want one line __version__ = \"…\", found %d", filepath.Base(file), found)
	}
	stamped := versionLine.ReplaceAll(text, []byte(`__version__ = "`+version.PEP440()+`"`))
	return os.WriteFile(file, stamped, 0o644)
}

// checkWheel makes sure that the wheel has the right version, our licence, and every file of the package.
func checkWheel(wheel, sources string, version Version) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("the wheel: %w", err)
	}
	defer archive.Close()
	metadata, err := wheelMetadata(archive, version)
	if err != nil {
		return err
	}
	if metadata.Version != version.PEP440() || metadata.LicenceExpression != "Apache-2.0" {
		return fmt.Errorf("%s has version %q and licence %q in its metadata; want %q and Apache-2.0",
			filepath.Base(wheel), metadata.Version, metadata.LicenceExpression, version.PEP440())
	}
	want := []string{distInfo(version) + "/licenses/LICENSE"}
	err = fs.WalkDir(os.DirFS(sources), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			want = append(want, path.Join("meridian", name))
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range want {
		if _, err := fs.Stat(archive, name); err != nil {
			return fmt.Errorf("%s does not hold %s", filepath.Base(wheel), name)
		}
	}
	return nil
}

func distInfo(version Version) string { return "meridian-" + version.PEP440() + ".dist-info" }

func wheelMetadata(archive fs.FS, version Version) (pypackage.Metadata, error) {
	file, err := archive.Open(distInfo(version) + "/METADATA")
	if err != nil {
		return pypackage.Metadata{}, fmt.Errorf("the wheel: %w", err)
	}
	defer file.Close()
	return pypackage.ReadMetadata(file)
}

// hatchlingVersion asks python for the version of hatchling, which is also how we learn early that it is missing.
func hatchlingVersion(ctx context.Context, python string) (string, error) {
	version, err := command.Command{
		Args: []string{python, "-c", "import importlib.metadata as m; print(m.version('hatchling'))"},
	}.Line(ctx)
	if err != nil {
		return "", fmt.Errorf("the wheel is built with hatchling; install it into .venv, or name another Python with -python: %w", err)
	}
	return version, nil
}
