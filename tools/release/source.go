package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"meridian/tools/internal/command"
)

// A Source is the working tree that a release is made from.
type Source struct {
	Root string
	// Commit is the full hash of HEAD.
	Commit string
	// Time is when Commit was made: the time of everything in the release.
	Time time.Time
	// Dirty means that the tree holds something that Commit does not.
	Dirty bool
	// Tag is the v* tag that points at Commit, or empty.
	Tag string
}

// OpenSource looks at the git repository around dir.
func OpenSource(ctx context.Context, dir string) (Source, error) {
	root, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return Source{}, fmt.Errorf("a release is made from a git checkout: %w", err)
	}
	commit, err := git(ctx, root, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return Source{}, fmt.Errorf("a release needs a commit to stand on; commit first: %w", err)
	}
	seconds, err := git(ctx, root, "show", "--no-patch", "--format=%ct", commit)
	if err != nil {
		return Source{}, err
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("commit time of %s: %w", commit, err)
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return Source{}, err
	}
	// describe fails when there is no such tag, which is the usual case.
	tag, _ := git(ctx, root, "describe", "--tags", "--exact-match", "--match", "v*", commit)
	return Source{Root: root, Commit: commit, Time: time.Unix(epoch, 0).UTC(), Dirty: changes != "", Tag: tag}, nil
}

// Version is the one asked for, or the tag of a clean tree, or a development version. A tag names exactly what was
// committed, so a dirty tree never gets it by itself.
func (s Source) Version(asked string) (Version, error) {
	switch {
	case asked != "":
		return ParseVersion(asked)
	case s.Tag != "" && !s.Dirty:
		return ParseVersion(s.Tag)
	}
	return DevVersion(s.Commit, s.Dirty), nil
}

// Stamp is what a binary built from the tree says of itself.
func (s Source) Stamp(asked string) (Stamp, error) {
	version, err := s.Version(asked)
	return Stamp{Version: version, Commit: s.Commit, Time: s.Time}, err
}

// Export copies every file that git does not ignore into dir. Ignored files can therefore not reach a release.
func (s Source) Export(ctx context.Context, dir string) error {
	list, err := command.Command{
		Dir: s.Root, Args: []string{"git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "-z"},
	}.Output(ctx)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		err := copyFile(filepath.Join(s.Root, name), filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && s.Dirty {
			continue // deleted from the tree, still in the index
		}
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	return nil
}

// copyFile copies a regular file or a symbolic link, keeping only the executable bit of its mode.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a file nor a link", from)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644|info.Mode().Perm()&0o111)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	return command.Command{Dir: dir, Args: append([]string{"git"}, args...)}.Line(ctx)
}
