package trust

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxFileBytes is far beyond any key or bundle, and keeps a wrong path from
// filling memory.
const maxFileBytes = 1 << 20

const (
	secretMode fs.FileMode = 0o600
	publicMode fs.FileMode = 0o644
)

// What others may not do with a file: the bits of a mode that are refused.
const (
	ownerOnly  fs.FileMode = 0o077
	groupReads fs.FileMode = 0o027 // as orchestrators mount secrets
	nobodyElse fs.FileMode = 0o002 // may write; all may read
	anyMode    fs.FileMode = 0
)

// readFile reads a regular file whose mode has none of the refused bits. It
// looks at the file it has opened, so that no other process can put another in its place.
func readFile(path string, refused fs.FileMode) ([]byte, error) {
	// A pipe without a writer must not hold us up before we see what it is.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, because(ErrFile, path+" is not a regular file")
	}
	if err := checkMode(path, info, refused); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = because(ErrFile, fmt.Sprintf("%s has more than %d bytes", path, maxFileBytes))
	}
	return data, err
}

func checkMode(path string, info fs.FileInfo, refused fs.FileMode) error {
	if mode := info.Mode().Perm(); mode&refused != 0 {
		return because(ErrExposed, fmt.Sprintf("%s has mode %04o where %04o is due", path, mode, mode&^refused))
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if refused == ownerOnly && owner != os.Geteuid() && owner != 0 {
		return because(ErrExposed, fmt.Sprintf("%s belongs to user %d", path, owner))
	}
	return nil
}

// createFile puts a whole file at path, or fails with fs.ErrExist and leaves
// what is there. Of several processes that try at once, one succeeds; and
// no reader ever sees a part of the file.
func createFile(path string, data []byte, mode fs.FileMode) error {
	return throughPartial(path, data, mode, func(partial string) error {
		err := os.Link(partial, path)
		if errors.Is(err, fs.ErrExist) {
			err = &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
		}
		return errors.Join(err, os.Remove(partial))
	})
}

// replaceFile puts a whole file at path, whatever was there.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	return throughPartial(path, data, mode, func(partial string) error {
		return os.Rename(partial, path)
	})
}

// throughPartial writes a file beside path and has it moved there once it is
// safe on disk.
func throughPartial(path string, data []byte, mode fs.FileMode, move func(partial string) error) error {
	dir := filepath.Dir(path)
	partial := filepath.Join(dir, ".partial-"+rand.Text())
	f, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, secretMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	if err := move(partial); err != nil {
		_ = os.Remove(partial) // it may be gone already
		return err
	}
	return syncDir(dir)
}

// syncDir makes sure that a file's name survives a crash as its bytes do.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes a directory for secrets. One that stands already must not let
// others put files of their own in place of ours.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return checkMode(dir, info, nobodyElse)
}
