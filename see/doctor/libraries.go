package doctor

import (
	"path"
	"slices"
	"strings"
)

const (
	maxLibraryDirs   = 256
	maxLoaderReads   = 64
	maxLoaderInclude = 4
)

// Besides what the loader is told, the places where distributions and GPU containers put libraries.
var usualLibraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib64", "/usr/local/lib",
	"/usr/local/nvidia/lib64", "/usr/local/ucx/lib", "/opt/ucx/lib", "/opt/hpcx/ucx/lib",
	"/usr/local/nixl/lib64", "/usr/local/nixl/lib/x86_64-linux-gnu", "/usr/local/nixl/lib/aarch64-linux-gnu",
	"/opt/nvidia/nvda_nixl/lib64", "/opt/nvidia/nvda_nixl/lib/x86_64-linux-gnu", "/opt/nvidia/nvda_nixl/lib/aarch64-linux-gnu",
}

// library is a shared object; version is what follows ".so." in its name, which need not be its release.
type library struct {
	dir, file, version string
}

func (l library) path() string { return path.Join(l.dir, l.file) }

func (p *boundedHost) libraries() map[string]library {
	found := make(map[string]library)
	for _, dir := range p.libraryDirs() {
		entries, err := p.list(dir)
		if err != nil {
			continue
		}
		inDir := make(map[string]library)
		for _, entry := range entries {
			name, version, isObject := strings.Cut(entry.Name(), ".so")
			name += ".so"
			version, _ = strings.CutPrefix(version, ".")
			if !isObject || !slices.Contains(wantedLibraries, name) || !isDotted(version) {
				continue
			}
			// Of libucp.so, libucp.so.0 and libucp.so.0.0.0 the longest says most; links to nowhere do not count.
			best, seen := inDir[name]
			if (!seen || len(version) > len(best.version)) && p.isRegular(path.Join(dir, entry.Name())) {
				inDir[name] = library{dir: dir, file: entry.Name(), version: version}
			}
		}
		for name, lib := range inDir {
			if _, earlier := found[name]; !earlier {
				found[name] = lib
			}
		}
	}
	return found
}

// libraryDirs are the loader's directories in its order: LD_LIBRARY_PATH, ld.so.conf, then the usual ones.
func (p *boundedHost) libraryDirs() []string {
	dirs := strings.FieldsFunc(p.env("LD_LIBRARY_PATH"), func(r rune) bool { return r == ':' || r == ';' })
	loader := loaderConfig{p: p}
	loader.read("/etc/ld.so.conf", 0)
	dirs = append(append(dirs, loader.dirs...), usualLibraryDirs...)
	return distinctDirs(dirs, maxLibraryDirs)
}

// loaderConfig gathers the directories of ld.so.conf(5) and of what it includes.
type loaderConfig struct {
	p     *boundedHost
	dirs  []string
	reads int // files and directories, bounded by maxLoaderReads
}

func (c *loaderConfig) read(name string, depth int) {
	if depth > maxLoaderInclude || !c.mayRead() {
		return
	}
	text, err := c.p.read(name)
	if err != nil {
		return
	}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] != "include":
			c.dirs = append(c.dirs, strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(":, \t\r\n", r) })...)
		default:
			for _, pattern := range fields[1:] {
				c.include(pattern, path.Dir(name), depth)
			}
		}
	}
}

// include reads the files that match a pattern, which may have wildcards in its last element.
func (c *loaderConfig) include(pattern, base string, depth int) {
	if !c.mayRead() {
		return
	}
	if !path.IsAbs(pattern) {
		pattern = path.Join(base, pattern)
	}
	dir := path.Dir(pattern)
	entries, err := c.p.list(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if matched, err := path.Match(path.Base(pattern), entry.Name()); err == nil && matched {
			c.read(path.Join(dir, entry.Name()), depth+1)
		}
	}
}

func (c *loaderConfig) mayRead() bool {
	c.reads++
	return c.reads <= maxLoaderReads
}

// distinctDirs keeps the first of each absolute directory.
func distinctDirs(dirs []string, most int) []string {
	seen := make(map[string]bool)
	var distinct []string
	for _, dir := range dirs {
		dir = path.Clean(strings.TrimSpace(dir))
		if path.IsAbs(dir) && !seen[dir] && len(distinct) < most {
			seen[dir] = true
			distinct = append(distinct, dir)
		}
	}
	return distinct
}

// isDotted accepts "", "1" and "550.54.14", but not the "backup" of libucp.so.backup.
func isDotted(version string) bool {
	return strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) < 0
}
