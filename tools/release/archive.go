package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// An Entry is one file of an archive.
type Entry struct {
	// Name is the path inside the archive, with forward slashes.
	Name string
	// From is the file to read; when empty, Text is the content.
	From       string
	Text       string
	Executable bool
}

// writeArchive writes a tar.gz of entries under one top directory. The bytes depend on nothing but the arguments and
// the contents: entries are sorted, modes are two, owners are 0, all times are mtime.
func writeArchive(to, top string, entries []Entry, mtime time.Time) (err error) {
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zipped, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	tarred := tar.NewWriter(zipped)
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, entry := range sorted {
		if err := entry.write(tarred, top, mtime); err != nil {
			return fmt.Errorf("%s: %s: %w", path.Base(to), entry.Name, err)
		}
	}
	return errors.Join(tarred.Close(), zipped.Close())
}

func (e Entry) write(tarred *tar.Writer, top string, mtime time.Time) error {
	content, size := io.Reader(strings.NewReader(e.Text)), int64(len(e.Text))
	if e.From != "" {
		file, err := os.Open(e.From)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		content, size = file, info.Size()
	}
	mode := int64(0o644)
	if e.Executable {
		mode = 0o755
	}
	err := tarred.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		Name: path.Join(top, e.Name), Size: size, Mode: mode, ModTime: mtime,
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(tarred, content)
	return err
}
