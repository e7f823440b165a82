package doctor

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	maxCommandDirs = 64
	maxSiteDirs    = 64
)

var pythonName = regexp.MustCompile(`^python(3(\.[0-9]+)?)?$`)

// wantedPackage is a Python module and the distribution that carries it, as its .dist-info directory is named. Builds
// for one platform append to the latter: mooncake_transfer_engine_cuda13.
type wantedPackage struct {
	module, distribution string
}

// pythonPackage is a module found in a directory; version is empty when no .dist-info tells it.
type pythonPackage struct {
	module, version, dir string
}

func (k pythonPackage) String() string {
	described := k.module
	if k.version != "" {
		described += " " + k.version
	}
	return described + " in " + k.dir
}

// commands are the programs on PATH that matter here.
type commands struct {
	pythons []string
	wanted  map[string]string
}

func (p *boundedHost) commands() commands {
	found := commands{wanted: make(map[string]string)}
	for _, dir := range distinctDirs(strings.Split(p.env("PATH"), ":"), maxCommandDirs) {
		entries, err := p.list(dir)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			name := entry.Name()
			switch _, earlier := found.wanted[name]; {
			case pythonName.MatchString(name):
				found.pythons = append(found.pythons, path.Join(dir, name))
			case !earlier && slices.Contains(wantedPrograms, name):
				found.wanted[name] = path.Join(dir, name)
			}
		}
	}
	return found
}

// siteDirs are the package directories of the active virtual environment, of every Python on PATH (where the command
// is and where its links lead), and of the user.
func (p *boundedHost) siteDirs(pythons []string) []string {
	prefixes := []string{p.env("VIRTUAL_ENV")}
	for _, python := range pythons {
		prefixes = append(prefixes, path.Join(path.Dir(python), ".."), path.Join(path.Dir(p.resolve(python)), ".."))
	}
	if home := p.env("HOME"); home != "" {
		prefixes = append(prefixes, path.Join(home, ".local"))
	}
	var sites []string
	for _, prefix := range distinctDirs(prefixes, maxCommandDirs) {
		for _, lib := range []string{"lib", "lib64", "local/lib"} {
			dir := path.Join(prefix, lib)
			entries, err := p.list(dir)
			if err != nil {
				continue
			}
			for _, entry := range entries {
				if strings.HasPrefix(entry.Name(), "python3") {
					sites = append(sites, path.Join(dir, entry.Name(), "site-packages"), path.Join(dir, entry.Name(), "dist-packages"))
				}
			}
		}
	}
	return distinctDirs(sites, maxSiteDirs)
}

func (p *boundedHost) packages(siteDirs []string) map[string]pythonPackage {
	found := make(map[string]pythonPackage)
	for _, dir := range siteDirs {
		entries, err := p.list(dir)
		if err != nil {
			continue
		}
		for _, wanted := range wantedPackages {
			_, earlier := found[wanted.module]
			if !earlier && p.isDir(path.Join(dir, wanted.module)) {
				found[wanted.module] = pythonPackage{
					module: wanted.module, version: distributedVersion(entries, wanted.distribution), dir: dir,
				}
			}
		}
	}
	return found
}

// distributedVersion prefers the distribution itself to a build of it for one platform.
func distributedVersion(entries []fs.DirEntry, distribution string) string {
	var ofBuild string
	for _, entry := range entries {
		stem, isInfo := strings.CutSuffix(entry.Name(), ".dist-info")
		name, version, _ := strings.Cut(stem, "-")
		name = strings.ToLower(name)
		switch {
		case !isInfo:
		case name == distribution:
			return version
		case ofBuild == "" && strings.HasPrefix(name, distribution+"_"):
			ofBuild = version
		}
	}
	return ofBuild
}
