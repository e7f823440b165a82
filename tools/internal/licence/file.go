package licence

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A File is a licence or notice found beside source code.
type File struct {
	// Path is relative to the root it was found under, with forward slashes.
	Path string
	Text string
	// IDs is what Classify found; always empty for a notice.
	IDs []string
}

// IsNotice reports whether the file only attributes, and so grants and forbids nothing.
func (f File) IsNotice() bool {
	return strings.HasPrefix(strings.ToLower(filepath.Base(f.Path)), "notice")
}

var (
	licenceName = regexp.MustCompile(`(?i)^((un)?licen[cs]es?|copying|notice)([-._].*)?$`)
	sourceName  = regexp.MustCompile(`(?i)\.(go|s|c|h|py|json|ya?ml|toml|sh|html)$`)
)

// Collect reads the licence and notice files of root and of every directory on the way from root down to each of
// dirs: code taken over from elsewhere often brings its own licence into the directory it lives in.
func Collect(root string, dirs []string) ([]File, error) {
	var files []File
	for _, dir := range chain(root, dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() || !licenceName.MatchString(entry.Name()) || sourceName.MatchString(entry.Name()) {
				continue
			}
			file, err := read(root, filepath.Join(dir, entry.Name()))
			if err != nil {
				return nil, err
			}
			files = append(files, file)
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

func read(root, path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, err
	}
	relative, err := filepath.Rel(root, path)
	if err != nil {
		return File{}, err
	}
	file := File{Path: filepath.ToSlash(relative), Text: string(text)}
	if !file.IsNotice() {
		file.IDs = Classify(file.Text)
	}
	return file, nil
}

// chain lists root, dirs, and all directories between, each once.
func chain(root string, dirs []string) []string {
	root = filepath.Clean(root)
	seen := map[string]bool{root: true}
	all := []string{root}
	for _, dir := range dirs {
		for dir = filepath.Clean(dir); !seen[dir] && strings.HasPrefix(dir, root+string(filepath.Separator)); dir = filepath.Dir(dir) {
			seen[dir] = true
			all = append(all, dir)
		}
	}
	return all
}

// IDs joins the identifiers of all files, sorted. It returns ErrUnknown naming the first licence file without one,
// and ErrUnknown alone when there is no licence file at all.
func IDs(files []File) ([]string, error) {
	var ids []string
	for _, file := range files {
		if file.IsNotice() {
			continue
		}
		if len(file.IDs) == 0 {
			return nil, unknownFile(file.Path)
		}
		ids = append(ids, file.IDs...)
	}
	if len(ids) == 0 {
		return nil, unknownFile("")
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
