package main

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writeAtomic leaves either the whole file at path or what was there before.
// What is no regular file, such as a pipe or a device, is written as it stands.
func writeAtomic(path string, write func(io.Writer) error) error {
	path = behindLinks(path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return replace(path, 0o666, write)
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
	case info.Mode().IsRegular():
		return replace(path, info.Mode().Perm(), write)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// replace writes a file beside path and renames it.
func replace(path string, mode fs.FileMode, write func(io.Writer) error) error {
	partial := filepath.Join(filepath.Dir(path), ".meridian-"+rand.Text())
	f, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: errors.Unwrap(err)}
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return nil
}

// behindLinks is the file that path leads to, whether it exists or not.
func behindLinks(path string) string {
	for range 40 { // as many as the kernel follows
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return path
}
