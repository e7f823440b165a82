package meridian

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// anyTestUses is what every room's tests may import.
var anyTestUses = []string{"github.com/google/go-cmp", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/rogpeppe/go-internal", "meridian/internal/until"}

// computing is what pure rooms may import of the standard library: nothing in
// it waits, reads a clock, rolls dice or touches the world.
var computing = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "hash", "iter", "maps", "math", "math/bits",
	"slices", "sort", "strconv", "strings", "unicode", "unicode/utf8",
}

type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Standard                           bool
}

// listPackages lists every package twice: as it is built, and as the accelerated
// build has it.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	var packages []goPackage
	for _, tags := range []string{"real", "real,accel"} {
		out, err := exec.Command("go", "list", "-tags="+tags, "-json=ImportPath,Imports,TestImports,XTestImports", "./...").Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
			var p goPackage
			err := decoder.Decode(&p)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			packages = append(packages, p)
		}
	}
	return packages
}

func TestRooms(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range listPackages(t) {
		name := roomOf(p.ImportPath)
		r, listed := rooms[name]
		if !listed {
			t.Errorf("package %s is in no wing's rooms.toml: say there what it owns and what it may import", p.ImportPath)
			continue
		}
		seen[name] = true
		for _, imported := range p.Imports {
			if problem := r.refuses(imported); problem != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, problem)
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if problem := r.testsRefuse(name, imported); problem != "" {
				t.Errorf("tests of %s import %s: %s", p.ImportPath, imported, problem)
			}
		}
	}
	for name := range rooms {
		if !seen[name] {
			t.Errorf("a rooms.toml lists %q, which does not exist", name)
		}
	}
}

func (r room) refuses(imported string) string {
	ours, isOurs := strings.CutPrefix(imported, "meridian/")
	switch {
	case isOurs && r.Leans[ours] == "":
		return "that arrow is not in the rooms.toml of its wing"
	case isOurs:
		return ""
	case strings.Contains(strings.SplitN(imported, "/", 2)[0], "."):
		for module := range r.Uses {
			if imported == module || strings.HasPrefix(imported, module+"/") {
				return ""
			}
		}
		return "that dependency is not in the room's row"
	case r.Pure && !slices.Contains(computing, imported):
		return "the room is pure: time, randomness and events are arguments, effects are return values"
	}
	return ""
}

func (r room) testsRefuse(name, imported string) string {
	r.Pure = false
	problem := r.refuses(imported)
	ours := strings.TrimPrefix(imported, "meridian/")
	if problem == "" || ours == name || slices.Contains(r.Tests, ours) {
		return ""
	}
	for _, module := range anyTestUses {
		if strings.HasPrefix(imported, module) {
			return ""
		}
	}
	return problem
}

// wings is the order in which they lean: each only on those before it. The
// shelves of internal stand beside the nouns, below all that uses them.
var wings = []string{"kv", "internal", "member", "decide", "move", "keep", "see", "serve", "engine", "run", "prove", "cmd"}

func TestWings(t *testing.T) {
	for name, r := range rooms {
		if name == "" {
			continue
		}
		if !slices.Contains(wings, wingOf(name)) {
			t.Errorf("%s is in no wing: the wings are %s", name, strings.Join(wings, ", "))
		}
		for leansOn := range r.Leans {
			if problem := wingRefuses(name, leansOn); problem != "" {
				t.Errorf("%s leans on %s: %s", name, leansOn, problem)
			}
		}
	}
}

func wingRefuses(from, to string) string {
	lower, upper := wingOf(to), wingOf(from)
	switch {
	case slices.Index(wings, lower) > slices.Index(wings, upper):
		return "that points upwards: what both need belongs below, or the room that leans belongs above"
	case upper == "decide" && lower != "decide" && lower != "kv":
		return "rooms that decide lean on the nouns alone"
	case upper == "move" && lower == "decide":
		return "what moves bytes never asks what decides"
	}
	return ""
}

func wingOf(room string) string {
	wing, _, _ := strings.Cut(room, "/")
	return wing
}

func TestWingsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		refused  bool
	}{
		"downwards":            {"serve/gateway", "decide/placement", false},
		"within a wing":        {"move/agent", "move/fabric", false},
		"a shelf":              {"move/agent", "internal/join", false},
		"upwards":              {"keep/store", "serve/door", true},
		"deciding on a member": {"decide/placement", "member/directory", true},
		"moving on deciding":   {"move/agent", "decide/policy", true},
	} {
		if got := wingRefuses(c.from, c.to) != ""; got != c.refused {
			t.Errorf("%s: refused %v, want %v", name, got, c.refused)
		}
	}
}

// The table must be able to fail.
func TestRoomsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		r        room
		imported string
		refused  bool
	}{
		"unlisted arrow":      {rooms["kv"], "meridian/move/mrdn", true},
		"listed arrow":        {rooms["move/mrdn"], "meridian/kv", false},
		"unlisted dependency": {rooms["move/mrdn"], "github.com/prometheus/client_golang/prometheus", true},
		"listed dependency":   {rooms["move/mrdn"], "github.com/zeebo/blake3", false},
		"sums in pure room":   {rooms["kv"], "math/bits", false},
		"clock in pure room":  {rooms["kv"], "time", true},
		"system in pure room": {rooms["kv"], "syscall", true},
		"clock elsewhere":     {rooms["see/telemetry"], "time", false},
	} {
		if got := c.r.refuses(c.imported) != ""; got != c.refused {
			t.Errorf("%s: refused %v, want %v", name, got, c.refused)
		}
	}
}
