package main

import (
	"cmp"
	"fmt"
	"runtime"

	"meridian/move/mrdn"
	"meridian/see/telemetry"
)

// Stamped by the linker from the git tag; see the Makefile and tools/release.
var version, commit, date string

type versionCommand struct {
	JSON bool `help:"Print one JSON object."`
}

type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	MRDN    int    `json:"mrdn"`
}

func thisBuild() buildInfo {
	b := buildInfo{
		Version: version, Commit: commit, Date: date,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, MRDN: mrdn.Version,
	}
	b.Version = cmp.Or(b.Version, "v0.0.0-dev")
	b.Commit = cmp.Or(b.Commit, "unknown")
	b.Date = cmp.Or(b.Date, "unknown")
	return b
}

// telemetryBuild is thisBuild as metrics and traces tell of it.
func telemetryBuild() telemetry.Build {
	b := thisBuild()
	return telemetry.Build{Version: b.Version, Commit: b.Commit, Go: b.Go}
}

func (c *versionCommand) Run(io *stdio) error {
	b := thisBuild()
	if c.JSON {
		return io.writeJSON(b)
	}
	_, err := fmt.Fprintf(io.out, "meridian %s (commit %s, %s)\n%s %s/%s, MRDN v%d\n",
		b.Version, b.Commit, b.Date, b.Go, b.OS, b.Arch, b.MRDN)
	return err
}
