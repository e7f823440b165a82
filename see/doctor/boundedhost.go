package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const (
	maxFileBytes  = 1 << 20
	maxDirEntries = 1 << 14
	maxPathBytes  = 1 << 12
	maxLinks      = 8
)

var (
	errNotRegular   = errors.New("not a regular file")
	errNotDirectory = errors.New("not a directory")
	errRelative     = errors.New("not an absolute path")
	errLongPath     = errors.New("the path is too long")
)

// boundedHost is a Host during one Examine. Every read of it is bounded and ends with the context; paths are absolute.
type boundedHost struct {
	ctx      context.Context
	host     Host
	software *software // nil until a check asks
}

// read returns the beginning of a regular file. It stats first, because opening a FIFO would wait for a writer.
func (p *boundedHost) read(name string) (string, error) {
	f, err := p.open(name, errNotRegular, fs.FileMode.IsRegular)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	if err != nil {
		return "", located(name, err)
	}
	return string(text), nil
}

// word is read for files that hold one short value.
func (p *boundedHost) word(name string) (string, error) {
	text, err := p.read(name)
	return strings.TrimSpace(text), err
}

// list returns the entries of a directory in order of name, at most maxDirEntries of them.
func (p *boundedHost) list(name string) ([]fs.DirEntry, error) {
	f, err := p.open(name, errNotDirectory, fs.FileMode.IsDir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dir, isDir := f.(fs.ReadDirFile)
	if !isDir {
		return nil, located(name, errNotDirectory)
	}
	entries, err := dir.ReadDir(maxDirEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, located(name, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func (p *boundedHost) open(name string, otherwise error, wanted func(fs.FileMode) bool) (fs.File, error) {
	info, err := p.stat(name)
	if err != nil {
		return nil, err
	}
	if !wanted(info.Mode()) {
		return nil, located(name, otherwise)
	}
	f, err := p.host.Files.Open(rooted(name))
	if err != nil {
		return nil, located(name, err)
	}
	return f, nil
}

func (p *boundedHost) stat(name string) (fs.FileInfo, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, located(name, err)
	}
	if !path.IsAbs(name) {
		return nil, located(name, errRelative)
	}
	if len(name) > maxPathBytes {
		return nil, located(shorten(name, 40), errLongPath)
	}
	info, err := fs.Stat(p.host.Files, rooted(name))
	if err != nil {
		return nil, located(name, err)
	}
	return info, nil
}

func (p *boundedHost) isRegular(name string) bool {
	info, err := p.stat(name)
	return err == nil && info.Mode().IsRegular()
}

func (p *boundedHost) isDir(name string) bool {
	info, err := p.stat(name)
	return err == nil && info.IsDir()
}

// resolve follows a chain of symbolic links by its last element and gives up quietly where it cannot.
func (p *boundedHost) resolve(name string) string {
	for range maxLinks {
		target, err := fs.ReadLink(p.host.Files, rooted(name))
		if err != nil {
			break
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		name = path.Clean(target)
	}
	return name
}

func (p *boundedHost) env(name string) string {
	value, _ := p.host.LookupEnv(name)
	return strings.TrimSpace(value)
}

func rooted(name string) string {
	if clean := strings.TrimPrefix(path.Clean(name), "/"); clean != "" {
		return clean
	}
	return "."
}

// located says where an error happened, once: the errors of package fs name the path without its root.
func located(name string, err error) error {
	if pathErr, isPath := errors.AsType[*fs.PathError](err); isPath {
		err = pathErr.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// unreadable is the finding when the one file that could tell does not.
func unreadable(name string, err error) finding {
	advice := fmt.Sprintf("Run it where this file is mounted and readable:\n    ls -l %s", name)
	if errors.Is(err, fs.ErrNotExist) {
		return absent(err.Error(), advice)
	}
	return warn(err.Error(), advice)
}

func malformed(name, text string) error {
	return fmt.Errorf("%s: cannot make sense of %q", name, shorten(text, 40))
}
