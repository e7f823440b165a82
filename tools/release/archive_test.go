package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

var someTime = time.Date(2026, 11, 15, 7, 41, 48, 0, time.UTC)

func archiveBytes(t *testing.T, entries []Entry) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := writeArchive(path, "top", entries, someTime); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestArchiveDependsOnContentsOnly(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"one/binary": "program", "two/binary": "program"})
	if err := os.Chmod(filepath.Join(dir, "two", "binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "two", "binary"), time.Now(), someTime.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	entries := func(place string) []Entry {
		return []Entry{
			{Name: "meridian", From: filepath.Join(dir, place, "binary"), Executable: true},
			{Name: "LICENSE", Text: "free"},
			{Name: "include/meridian/mrdn.hpp", Text: "#pragma once"},
		}
	}
	reversed := entries("two")
	slices.Reverse(reversed)
	first, second := archiveBytes(t, entries("one")), archiveBytes(t, reversed)
	if !bytes.Equal(first, second) {
		t.Error("order, mode or time of the input files shows in the archive")
	}
	if changed := archiveBytes(t, append(reversed[:2:2], Entry{Name: "meridian", Text: "other", Executable: true})); bytes.Equal(first, changed) {
		t.Error("another content gives the same archive")
	}
}

func TestArchiveHeaders(t *testing.T) {
	content := archiveBytes(t, []Entry{{Name: "meridian", Text: "program", Executable: true}, {Name: "LICENSE", Text: "free"}})
	zipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	type header struct {
		name, text string
		mode       int64
	}
	var got []header
	for reader := tar.NewReader(zipped); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || !h.ModTime.Equal(someTime) {
			t.Errorf("%s: owner %d:%d %q:%q, time %v", h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime)
		}
		got = append(got, header{h.Name, string(text), h.Mode})
	}
	if want := []header{{"top/LICENSE", "free", 0o644}, {"top/meridian", "program", 0o755}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestArchiveNamesTheMissingFile(t *testing.T) {
	err := writeArchive(filepath.Join(t.TempDir(), "a.tar.gz"), "top", []Entry{{Name: "README.md", From: "no/such/file"}}, someTime)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}
