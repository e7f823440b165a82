package meridian

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pelletier/go-toml/v2"

	goldenfile "meridian/internal/golden"
)

// room is one row of a wing's table: what a package may lean on, and why. A
// package or an arrow that is in no table fails TestRooms; adding one is a
// decision, so its reason is written down.
type room struct {
	Owns string `toml:"owns"`
	// Read names the file that tells more of it.
	Read string `toml:"read"`
	// Leans names the rooms it may import, each with the reason.
	Leans map[string]string `toml:"leans"`
	// Uses names the modules of others it may import, each with the reason.
	Uses map[string]string `toml:"uses"`
	// Pure rooms compute: no clock, no I/O, no goroutines, no randomness.
	Pure bool `toml:"pure"`
	// Tests names what its tests may import besides.
	Tests []string `toml:"tests"`
}

// tables are those of the wings, one beside each.
//
//go:embed */rooms.toml
var tables embed.FS

var rooms = func() map[string]room {
	all, err := readRooms(tables)
	if err != nil {
		panic(err)
	}
	all[""] = room{
		Owns:  "tests of the tree itself",
		Uses:  map[string]string{"github.com/pelletier/go-toml": "the tables of the wings"},
		Tests: []string{"internal/golden", "internal/mutant", "internal/require", "see/telemetry"},
	}
	return all
}()

// readRooms returns the rows of all tables by room.
func readRooms(files fs.FS) (map[string]room, error) {
	names, err := fs.Glob(files, "*/rooms.toml")
	if err != nil {
		return nil, err
	}
	all := make(map[string]room)
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var table map[string]room
		if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&table); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for of, r := range table {
			if problem := r.lacks(of, path.Dir(name)); problem != "" {
				return nil, fmt.Errorf("%s: %s: %s", name, of, problem)
			}
			all[of] = r
		}
	}
	return all, nil
}

// lacks tells what is wrong with a row in the table of a wing.
func (r room) lacks(name, wing string) string {
	reasons := slices.AppendSeq(slices.Collect(maps.Values(r.Leans)), maps.Values(r.Uses))
	switch {
	case wingOf(name) != wing:
		return "it stands in the table of another wing"
	case r.Owns == "":
		return "it does not say what it owns"
	case slices.Contains(reasons, ""):
		return "an arrow has no reason"
	}
	return ""
}

func TestTablesRefuse(t *testing.T) {
	for name, c := range map[string]struct{ table, problem string }{
		"a row":            {"[a]\nowns = 'x'\nleans.b = 'why'\n", ""},
		"another wing":     {"['b/c']\nowns = 'x'\n", "another wing"},
		"nothing owned":    {"[a]\npure = true\n", "owns"},
		"no reason":        {"[a]\nowns = 'x'\nleans.b = ''\n", "no reason"},
		"none for modules": {"[a]\nowns = 'x'\nuses.b = ''\n", "no reason"},
		"an unknown key":   {"[a]\nowns = 'x'\nlean.b = 'why'\n", "missing"},
		"a room twice":     {"[a]\nowns = 'x'\n[a]\nowns = 'y'\n", "already"},
	} {
		_, err := readRooms(fstest.MapFS{"a/rooms.toml": {Data: []byte(c.table)}})
		if got := fmt.Sprint(err); (err != nil) != (c.problem != "") || !strings.Contains(got, c.problem) {
			t.Errorf("%s: %v, want %q", name, err, c.problem)
		}
	}
}

const roomsHead = "# Rooms\n" + `
What each package of Go owns, and which others it may lean on. The wings are the folders of the root, from the ground up; a room leans on its own wing, on those before
it, and on the shelves of ` + "`internal`" + ` ([ADR-0034](adr/0034-rooms-stand-in-wings.md)). [ARCHITECTURE.md](../ARCHITECTURE.md) draws them.

This page is made by ` + "`make generate`" + ` from a table beside each wing, which has the reason for every arrow. [deps_test.go](../deps_test.go) holds the code to the tables: a package or
an import that is in none fails. The keys of a row:

| Key | Meaning |
|---|---|
| ` + "`owns`" + ` | what the room is for |
| ` + "`leans`" + ` | the rooms that it may import, each with the reason |
| ` + "`uses`" + ` | the modules of others that it may import, each with the reason |
| ` + "`pure`" + ` | it computes: no clock, no I/O, no goroutine, no randomness |
| ` + "`tests`" + ` | what its tests may import besides |
| ` + "`read`" + ` | the file that tells more |
`

// docs/rooms.md is the tables of the wings as one page.
func TestReferenceOfRooms(t *testing.T) {
	var page strings.Builder
	page.WriteString(roomsHead)
	for _, wing := range wings {
		fmt.Fprintf(&page, "\n## %s\n\nFrom [%s/rooms.toml](../%[1]s/rooms.toml).\n\n| Room | Owns | Leans on |\n|---|---|---|\n", wing, wing)
		for _, name := range slices.Sorted(maps.Keys(rooms)) {
			if wingOf(name) == wing {
				fmt.Fprintf(&page, "| `%s` | %s | %s |\n", name, rooms[name].described(t), rooms[name].leansOn())
			}
		}
	}
	goldenfile.File(t, "docs/rooms.md", []byte(page.String()))
}

func (r room) described(t *testing.T) string {
	t.Helper()
	text := r.Owns
	if r.Pure {
		text += "; pure"
	}
	if r.Read != "" {
		link, err := filepath.Rel("docs", r.Read)
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("; [%s](%s)", path.Base(r.Read), filepath.ToSlash(link))
	}
	return text
}

func (r room) leansOn() string {
	if len(r.Leans) == 0 {
		return "–"
	}
	return "`" + strings.Join(slices.Sorted(maps.Keys(r.Leans)), "`, `") + "`"
}
