// Command protogen makes what is made of the schemas in proto/: Go code in the
// alcove of the room that speaks it, and a descriptor set for Python.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// schema is a file of proto/ and what is made of it.
type schema struct {
	source, goFile, descriptors string
}

var schemas = []schema{
	{source: "meridian/door/v1/door.proto", goFile: "serve/door/doorpb/door.pb.go", descriptors: "python/meridian/door/door.binpb"},
}

func main() {
	root := flag.String("root", "..", "the tree")
	check := flag.Bool("check", false, "write nothing; fail if what stands there is not what would be written")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	var errs []error
	for _, s := range schemas {
		made, err := s.generate(context.Background(), filepath.Join(root, "proto"))
		if err != nil {
			return fmt.Errorf("%s: %w", s.source, err)
		}
		for path, content := range made {
			errs = append(errs, place(filepath.Join(root, path), content, check))
		}
	}
	return errors.Join(errs...)
}

// generate returns the files, by their path in the tree.
func (s schema) generate(ctx context.Context, importPath string) (map[string][]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{importPath}},
		SourceInfoMode: protocompile.SourceInfoStandard, // comments go into the Go code
	}
	files, err := compiler.Compile(ctx, s.source)
	if err != nil {
		return nil, err
	}
	all := withImports(files)
	code, err := goCode(s.source, all)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		f.SourceCodeInfo = nil
	}
	set, err := proto.MarshalOptions{Deterministic: true}.Marshal(&descriptorpb.FileDescriptorSet{File: all})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{s.goFile: code, s.descriptors: set}, nil
}

// withImports lists the files and what they import, each after its imports.
func withImports(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var all []*descriptorpb.FileDescriptorProto
	seen := make(map[string]bool)
	var visit func(linker.File)
	visit = func(f linker.File) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			visit(f.FindImportByPath(f.Imports().Get(i).Path()))
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range files {
		visit(f)
	}
	return all
}

// goCode runs the pinned protoc-gen-go.
func goCode(source string, files []*descriptorpb.FileDescriptorProto) ([]byte, error) {
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{source}, ProtoFile: files, Parameter: proto.String("paths=source_relative"),
	})
	if err != nil {
		return nil, err
	}
	generator := exec.Command("go", "tool", "protoc-gen-go")
	generator.Stdin, generator.Stderr = bytes.NewReader(request), os.Stderr
	out, err := generator.Output()
	if err != nil {
		return nil, fmt.Errorf("protoc-gen-go: %w", err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return nil, fmt.Errorf("protoc-gen-go: %w", err)
	}
	if response.Error != nil || len(response.File) != 1 {
		return nil, fmt.Errorf("protoc-gen-go: %d files: %s", len(response.File), response.GetError())
	}
	return formatted(response.File[0].GetContent())
}

// formatted is code as all of the tree is, so that no check makes an exception for it.
func formatted(code string) ([]byte, error) {
	formatter := exec.Command("go", "tool", "gofumpt")
	formatter.Stdin, formatter.Stderr = strings.NewReader(code), os.Stderr
	out, err := formatter.Output()
	if err != nil {
		return nil, fmt.Errorf("gofumpt: %w", err)
	}
	return out, nil
}

// place writes a file, or says that it is not what it should be.
func place(path string, content []byte, check bool) error {
	standing, err := os.ReadFile(path)
	if err == nil && bytes.Equal(standing, content) {
		return nil
	}
	if check {
		return fmt.Errorf("%s is not what its schema makes: run `make generate`", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
