package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"meridian/internal/require"
	"meridian/kv"
)

func cxxCompiler(t *testing.T) string {
	t.Helper()
	return require.Program(t, "c++", "g++", "clang++")
}

func TestAnyCXXCompilerWillDo(t *testing.T) {
	clang := filepath.Join(t.TempDir(), "clang++")
	if err := os.WriteFile(clang, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(clang))
	if got := cxxCompiler(t); got != clang {
		t.Errorf("found %s", got)
	}
}

// TestFramesFromCXX has the C++ header write frames, and the command agree with
// it about every one of them.
func TestFramesFromCXX(t *testing.T) {
	compiler := cxxCompiler(t)
	require.Reads(t, "../../include")
	tool := filepath.Join(t.TempDir(), "mrdn_tool")
	compile := exec.Command(compiler, "-std=c++17", "-O1", "-I", "../../include", "../../include/meridian/test/mrdn_tool.cpp", "-o", tool)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var stream bytes.Buffer
	for i, tier := range kv.Tiers() {
		encode := exec.Command(tool, "encode", tier.String())
		encode.Stdin = strings.NewReader(strings.Repeat("body ", 1000*i))
		frame, err := encode.Output()
		if err != nil {
			t.Fatal(err)
		}
		stream.Write(frame)
	}
	inspect := exec.Command(tool, "inspect")
	inspect.Stdin = bytes.NewReader(stream.Bytes())
	theirs, err := inspect.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if status := run([]string{"frame", "inspect", "--json", "-"}, &stdio{in: &stream, out: &out, err: &errs}); status != exitOK {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var ours struct{ Frames []frameRow }
	if err := json.Unmarshal(out.Bytes(), &ours); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, f := range ours.Frames {
		fmt.Fprintf(&lines, "%d %s %d %s ok\n", f.Offset, f.Tier, f.BodyBytes, f.Checksum)
	}
	if lines.String() != string(theirs) || len(ours.Frames) != len(kv.Tiers()) {
		t.Errorf("C++ says\n%sGo says\n%s", theirs, lines.String())
	}
}
