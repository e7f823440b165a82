package main

import (
	"archive/zip"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"meridian/tools/internal/gomodule"
	"meridian/tools/internal/licence"
)

// writeAndRead returns the bill as a reader of the file sees it.
func writeAndRead(t *testing.T, bom *cdx.BOM) *cdx.BOM {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.cdx.json")
	if err := writeBOM(path, bom); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var read cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(content), cdx.BOMFileFormatJSON).Decode(&read); err != nil {
		t.Fatal(err)
	}
	if read.SpecVersion != cdx.SpecVersion1_6 {
		t.Errorf("CycloneDX %v, want 1.6", read.SpecVersion)
	}
	return &read
}

func TestGoBOMOfARealBinary(t *testing.T) {
	if !isNative(runtime.GOARCH) {
		t.Skip("skipped: this machine does not build linux binaries by default")
	}
	tree, binary, stamp := smallProgram(t), filepath.Join(t.TempDir(), "meridian"), someStamp(t)
	if err := buildBinary(context.Background(), tree, runtime.GOARCH, binary, "", stamp); err != nil {
		t.Fatal(err)
	}
	listing, err := gomodule.List(context.Background(), gomodule.Query{Dir: tree, Patterns: []string{program}, GOARCH: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	bom, err := goBOM(binary, runtime.GOARCH, listing, stamp)
	if err != nil {
		t.Fatal(err)
	}
	read := writeAndRead(t, bom)
	subject := read.Metadata.Component
	if want := "pkg:golang/meridian@v0.2.0-rc.1?goarch=" + runtime.GOARCH + "&goos=linux"; subject.PackageURL != want {
		t.Errorf("subject is %s, want %s", subject.PackageURL, want)
	}
	if sum, err := sumFile(binary); err != nil || (*subject.Hashes)[0].Value != sum {
		t.Errorf("hash of the subject is %v, want %s, %v", *subject.Hashes, sum, err)
	}
	std := (*read.Components)[0]
	if len(*read.Components) != 1 || std.PackageURL != "pkg:golang/std@"+runtime.Version() || (*std.Licenses)[0].License.ID != "BSD-3-Clause" {
		t.Errorf("components are %+v", *read.Components)
	}
	if got, want := *(*read.Dependencies)[0].Dependencies, []string{std.BOMRef}; !reflect.DeepEqual(got, want) {
		t.Errorf("the program depends on %v, want %v", got, want)
	}
	extra := listing
	extra.Modules = append([]gomodule.Module{{Path: "example.org/extra", Version: "v1.0.0"}}, listing.Modules...)
	if _, err := goBOM(binary, runtime.GOARCH, extra, stamp); err == nil {
		t.Error("a module that is not in the binary was accepted")
	}
}

func TestGoComponent(t *testing.T) {
	module := gomodule.Module{Path: "github.com/Up/case", Files: []licence.File{
		{Path: "LICENSE", IDs: []string{"Apache-2.0"}}, {Path: "x/LICENSE", IDs: []string{"MIT"}}, {Path: "NOTICE"},
	}}
	component, err := goComponent(&debug.Module{
		Path: "github.com/Up/case", Version: "v3.0.0+incompatible", Sum: "h1:ixhCt93XkJ98kGposQ54+bl0IK6XwqB40AsMynU7Z8E=",
	}, module)
	if err != nil {
		t.Fatal(err)
	}
	want := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: "github.com/Up/case", Version: "v3.0.0+incompatible",
		BOMRef:     "pkg:golang/github.com/up/case@v3.0.0%2Bincompatible",
		PackageURL: "pkg:golang/github.com/up/case@v3.0.0%2Bincompatible",
		Licenses:   &cdx.Licenses{{Expression: "Apache-2.0 AND MIT"}},
		Hashes: &[]cdx.Hash{{
			Algorithm: cdx.HashAlgoSHA256, Value: "8b1842b7ddd7909f7c906a68b10e78f9b97420ae97c2a078d00b0cca753b67c1",
		}},
		Properties: &[]cdx.Property{{Name: "meridian:go.sum", Value: "h1:ixhCt93XkJ98kGposQ54+bl0IK6XwqB40AsMynU7Z8E="}},
	}
	if !reflect.DeepEqual(component, want) {
		t.Errorf("got  %+v\nwant %+v", component, want)
	}
	module.Files[0].IDs = []string{"GPL-3.0"}
	if _, err := goComponent(&debug.Module{Path: "p", Version: "v1.0.0"}, module); err == nil {
		t.Error("a module under the GPL was accepted")
	}
}

func TestSerialNumberFollowsContent(t *testing.T) {
	first, again, other := serialNumber([]byte("a")), serialNumber([]byte("a")), serialNumber([]byte("b"))
	form := regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if first != again || first == other || !form.MatchString(first) {
		t.Errorf("serial numbers %s, %s, %s", first, again, other)
	}
}

// zippedWheel writes a wheel of the given files.
func zippedWheel(t *testing.T, files map[string]string) string {
	t.Helper()
	var content bytes.Buffer
	archive := zip.NewWriter(&content)
	for name, text := range files {
		file, err := archive.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"x.whl": content.String()})
	return filepath.Join(dir, "x.whl")
}

const wheelHeaders = "Name: meridian\nVersion: 0.2.0rc1\nLicense-Expression: Apache-2.0\n"

func TestPythonBOM(t *testing.T) {
	wheel := zippedWheel(t, map[string]string{
		"meridian-0.2.0rc1.dist-info/METADATA": wheelHeaders +
			"Requires-Dist: blake3<2,>=1.0\nRequires-Dist: loose>=1\nRequires-Dist: torch; extra == 'gpu'\n\n",
	})
	tree := t.TempDir()
	write(t, tree, map[string]string{"python/requirements.lock": "blake3==1.0.11 --hash=sha256:00\nruff==0.1\n"})
	bom, err := pythonBOM(wheel, tree, someStamp(t))
	if err != nil {
		t.Fatal(err)
	}
	read := writeAndRead(t, bom)
	if want := "pkg:pypi/meridian@0.2.0rc1"; read.Metadata.Component.PackageURL != want {
		t.Errorf("subject is %s, want %s", read.Metadata.Component.PackageURL, want)
	}
	var got []string
	for _, c := range *read.Components {
		got = append(got, c.PackageURL+" "+(*c.Properties)[0].Value+" "+string(c.Scope))
	}
	want := []string{
		"pkg:pypi/blake3@1.0.11 blake3<2,>=1.0 ", "pkg:pypi/loose loose>=1 ", "pkg:pypi/torch torch; extra == 'gpu' optional",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("components %q, want %q", got, want)
	}
	write(t, tree, map[string]string{"python/requirements.lock": "blake3==1.0.11\nblake3==1.0.12\n"})
	if _, err := pythonBOM(wheel, tree, someStamp(t)); err == nil {
		t.Error("a lock file that contradicts itself was accepted")
	}
}
