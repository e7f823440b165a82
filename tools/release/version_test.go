package main

import "testing"

const someCommit = "59c2afefa0e7851a2b6299cb2d975950f1d3cb90"

func TestParseVersion(t *testing.T) {
	for tag, want := range map[string]string{
		"v0.1.0":          "0.1.0",
		"v10.20.30":       "10.20.30",
		"v0.2.0-rc.1":     "0.2.0rc1",
		"v0.2.0-alpha.0":  "0.2.0a0",
		"v1.0.0-beta.12":  "1.0.0b12",
		"v0.0.0-rc.10":    "0.0.0rc10",
		"v2026.11.15":     "2026.11.15",
		"v1.0.0-alpha.10": "1.0.0a10",
	} {
		version, err := ParseVersion(tag)
		if err != nil || version.PEP440() != want || version.String() != tag {
			t.Errorf("ParseVersion(%q) = %q, PEP 440 %q, %v; want %q", tag, version, version.PEP440(), err, want)
		}
	}
}

func TestParseVersionRefuses(t *testing.T) {
	for _, tag := range []string{
		"", "0.1.0", "v0.1", "v01.0.0", "v0.1.0-rc", "v0.1.0-rc1", "v0.1.0-rc.01", "v0.1.0-preview.1", "v0.1.0+linux",
		"v0.1.0 ", "v0.1.0\n", "v0.1.0-rc.1.2", "latest", "v0.0.0-dev.59c2afefa0e7",
	} {
		if version, err := ParseVersion(tag); err == nil {
			t.Errorf("ParseVersion(%q) = %q, PEP 440 %q; want an error", tag, version, version.PEP440())
		}
	}
}

func TestDevVersion(t *testing.T) {
	for dirty, want := range map[bool][2]string{
		false: {"v0.0.0-dev.59c2afefa0e7", "0.0.0.dev0+g59c2afefa0e7"},
		true:  {"v0.0.0-dev.59c2afefa0e7.dirty", "0.0.0.dev0+g59c2afefa0e7.dirty"},
	} {
		version := DevVersion(someCommit, dirty)
		if got := [2]string{version.String(), version.PEP440()}; got != want {
			t.Errorf("dirty %v: %q, want %q", dirty, got, want)
		}
	}
}
