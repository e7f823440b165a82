package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStampVersion(t *testing.T) {
	dir, version := t.TempDir(), someStamp(t).Version
	file := filepath.Join(dir, "_version.py")
	write(t, dir, map[string]string{"_version.py": "# why\n__version__ = \"0.0.0.dev0\"\n"})
	if err := stampVersion(file, version); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "# why\n__version__ = \"0.2.0rc1\"\n" {
		t.Errorf("stamped %q, %v", text, err)
	}
	for _, bad := range []string{"", "version = \"1\"\n", "__version__ = \"1\"\n__version__ = \"2\"\n"} {
		write(t, dir, map[string]string{"_version.py": bad})
		if err := stampVersion(file, version); err == nil {
			t.Errorf("%q was stamped", bad)
		}
	}
}

func TestCheckWheel(t *testing.T) {
	const info = "meridian-0.2.0rc1.dist-info/"
	sources := t.TempDir()
	write(t, sources, map[string]string{"__init__.py": "", "py.typed": "", "deep/data.json": "{}"})
	whole := func() map[string]string {
		return map[string]string{
			info + "METADATA": wheelHeaders + "\n", info + "licenses/LICENSE": "Apache",
			"meridian/__init__.py": "", "meridian/py.typed": "", "meridian/deep/data.json": "{}",
		}
	}
	version := someStamp(t).Version
	if err := checkWheel(zippedWheel(t, whole()), sources, version); err != nil {
		t.Errorf("a whole wheel: %v", err)
	}
	for name := range whole() {
		files := whole()
		delete(files, name)
		if err := checkWheel(zippedWheel(t, files), sources, version); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for _, headers := range []string{
		"Name: meridian\nVersion: 0.0.0.dev0\nLicense-Expression: Apache-2.0\n\n",
		"Name: meridian\nVersion: 0.2.0rc1\nLicense-Expression: MIT\n\n",
	} {
		files := whole()
		files[info+"METADATA"] = headers
		if err := checkWheel(zippedWheel(t, files), sources, version); err == nil {
			t.Errorf("metadata %q was accepted", headers)
		}
	}
}
