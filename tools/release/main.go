// Command release builds everything that a release of Meridian consists of, twice, and keeps it only when both builds
// are the same to the byte.
//
//	go run ./release [-out ../dist] [-version v0.1.0] [-python ../.venv/bin/python]
//	go run ./release -stamp    # what `make build` stamps its binary with
//
//	working tree ── export ──▶ copy 1 ── build ──▶ artefacts 1 ─┐
//	                             └─ copy 2 ── build ──▶ artefacts 2 ─┴─ equal? ──▶ -out
//
// The second build starts with an empty compiler cache in another directory, so that it repeats all the work; with
// -warm it takes the user's, and repeats linking and packing. The artefacts: a tar.gz with a static binary for each architecture, the Python wheel, a CycloneDX bill of materials for
// each of them, an unsigned SLSA provenance statement, and SHA256SUMS over all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"meridian/tools/internal/command"
)

type options struct {
	out, version, python string
	stamp, warm          bool
}

func main() {
	var opts options
	flag.StringVar(&opts.out, "out", "../dist", "directory for the artefacts; an earlier release in it is replaced")
	flag.StringVar(&opts.version, "version", "", "version of the release, such as v0.1.0; by default that of the tag")
	flag.StringVar(&opts.python, "python", "", "Python that has hatchling; by default .venv/bin/python of the checkout")
	flag.BoolVar(&opts.stamp, "stamp", false, "only print what a binary of this tree says of itself, as the linker takes it")
	flag.BoolVar(&opts.warm, "warm", false, "let the second build use what the first has compiled: much faster, and it proves less")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := release(ctx, opts); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted; nothing was written")
		}
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(ctx context.Context, opts options) (err error) {
	source, err := OpenSource(ctx, ".")
	if err != nil {
		return err
	}
	if opts.stamp {
		stamp, err := source.Stamp(opts.version)
		if err == nil {
			fmt.Println(stamp)
		}
		return err
	}
	out, err := filepath.Abs(opts.out)
	if err != nil {
		return err
	}
	if err := checkReplaceable(out); err != nil {
		return err
	}
	build, err := newBuild(ctx, source, opts)
	if err != nil {
		return err
	}
	build.Say("releasing %s from commit %s", build.Stamp.Version, source.Commit)
	if source.Dirty {
		build.Say("note: the tree differs from that commit; the provenance says so")
	}
	scratch, err := os.MkdirTemp("", "meridian-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	artefacts, sums, err := buildTwice(ctx, build, source, scratch, opts.warm)
	if err != nil {
		return err
	}
	if err := publish(artefacts, out); err != nil {
		return err
	}
	fmt.Print(sums)
	fmt.Printf("reproducible: %d artefacts identical in two builds\n", len(sums))
	return nil
}

func newBuild(ctx context.Context, source Source, opts options) (*Build, error) {
	stamp, err := source.Stamp(opts.version)
	if err != nil {
		return nil, err
	}
	python := filepath.Join(source.Root, ".venv", "bin", "python")
	if opts.python != "" {
		if python, err = filepath.Abs(opts.python); err != nil {
			return nil, err
		}
	}
	hatchling, err := hatchlingVersion(ctx, python)
	if err != nil {
		return nil, err
	}
	goVersion, err := command.Command{Dir: source.Root, Args: []string{"go", "env", "GOVERSION"}}.Line(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	return &Build{
		Stamp:  stamp,
		Dirty:  source.Dirty,
		Python: python,
		Tools:  map[string]string{"go": goVersion, "hatchling": hatchling},
		Say: func(format string, args ...any) {
			fmt.Printf("%6.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		},
	}, nil
}

// buildTwice returns the directory and the sums of the first build once the second has come out the same.
func buildTwice(ctx context.Context, build *Build, source Source, scratch string, warm bool) (string, Sums, error) {
	first, err := newSite(filepath.Join(scratch, "first"))
	if err != nil {
		return "", nil, err
	}
	second, err := newSite(filepath.Join(scratch, "second", "in", "another", "place"))
	if err != nil {
		return "", nil, err
	}
	how := "with what the first has compiled"
	if !warm {
		second.Cache, how = filepath.Join(scratch, "cache"), "with an empty compiler cache"
	}
	if err := source.Export(ctx, first.Tree); err != nil {
		return "", nil, err
	}
	// Copied before the first build changes it; not exported again, in case the tree is still being edited.
	if err := os.CopyFS(second.Tree, os.DirFS(first.Tree)); err != nil {
		return "", nil, err
	}
	build.Say("first build")
	sums, err := build.Run(ctx, first)
	if err != nil {
		return "", nil, err
	}
	build.Say("second build, elsewhere and %s", how)
	again, err := build.Run(ctx, second)
	if err != nil {
		return "", nil, fmt.Errorf("second build: %w", err)
	}
	if differ := sums.Differences(again); len(differ) > 0 {
		return "", nil, fmt.Errorf("not reproducible: these differ between two builds of the same sources: %s",
			strings.Join(differ, ", "))
	}
	return first.Artefacts, sums, nil
}

func newSite(dir string) (Site, error) {
	site := Site{
		Tree: filepath.Join(dir, "tree"), Binaries: filepath.Join(dir, "bin"), Artefacts: filepath.Join(dir, "dist"),
	}
	for _, dir := range []string{site.Tree, site.Binaries, site.Artefacts} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Site{}, err
		}
	}
	return site, nil
}
