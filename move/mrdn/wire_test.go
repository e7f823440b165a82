package mrdn

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meridian/kv"
)

func source(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// described is what docs/wire.md says of the frame.
func described(t *testing.T) string {
	t.Helper()
	_, section, found := strings.Cut(source(t, "docs/wire.md"), "\n## MRDN frame, version 1\n")
	if !found {
		t.Fatal("docs/wire.md does not describe the frame")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

func TestHeaderIsAsDescribed(t *testing.T) {
	h := Header{Tier: kv.OutputCritical, BodyLen: 0x04030201, Checksum: Checksum([]byte("x"))}
	wire := h.Append(nil)
	want := map[string]string{
		"magic": "MRDN", "version": "\x01\x00\x00\x00", "body_len": "\x01\x02\x03\x04",
		"tier": "\x02", "pad": "\x00\x00\x00", "checksum": string(h.Checksum[:]),
	}
	rows := regexp.MustCompile(`(?m)^ +(\d+) +(\d+) +(\w+)`).FindAllStringSubmatch(described(t), -1)
	end := 0
	for _, row := range rows {
		offset, _ := strconv.Atoi(row[1])
		size, _ := strconv.Atoi(row[2])
		if offset != end || offset+size > len(wire) {
			t.Fatalf("%s stands at %d with %d bytes, after %d of %d", row[3], offset, size, end, len(wire))
		}
		end = offset + size
		if got := string(wire[offset:end]); got != want[row[3]] {
			t.Errorf("%s is %x, want %x", row[3], got, want[row[3]])
		}
	}
	if len(rows) != len(want) || end != HeaderSize || !strings.Contains(described(t), fmt.Sprintf("\n%7d     …  body ", HeaderSize)) {
		t.Errorf("%d fields in %d bytes, want %d in %d", len(rows), end, len(want), HeaderSize)
	}
}

func TestTiersAreAsDescribed(t *testing.T) {
	var tiers []string
	for _, tier := range kv.Tiers() {
		tiers = append(tiers, fmt.Sprintf("%d %s", tier, tier))
	}
	if list := strings.Join(tiers, ", "); !strings.Contains(described(t), "tier      "+list+"\n") {
		t.Errorf("docs/wire.md does not list the tiers as %s", list)
	}
}

func TestCapIsAsDescribed(t *testing.T) {
	match := regexp.MustCompile(`(\d+) MiB by default`).FindStringSubmatch(described(t))
	if match == nil || match[1] != strconv.Itoa(DefaultMaxBody>>20) {
		t.Errorf("docs/wire.md says %v, Go says %d MiB", match, DefaultMaxBody>>20)
	}
	for path, line := range map[string]string{
		"python/meridian/mrdn.py":   "DEFAULT_MAX_BODY: Final = %d << 20",
		"include/meridian/mrdn.hpp": "default_max_body = %du << 20;",
	} {
		if line = fmt.Sprintf(line, DefaultMaxBody>>20); !strings.Contains(source(t, path), line) {
			t.Errorf("%s lacks %q", path, line)
		}
	}
}

// Every verdict has the name in each language that the table gives it.
func TestVerdictsAreAsDescribed(t *testing.T) {
	inGo, inPython, inCXX := source(t, "move/mrdn/verdict.go"), source(t, "python/meridian/mrdn.py"), source(t, "include/meridian/mrdn.hpp")
	rows := regexp.MustCompile("(?m)^\\| (\\d) \\| [^|]+ \\| `(\\w+)` \\| `(\\w+)` \\| `(\\w+)` \\| `([\\w:]+)` \\|$").
		FindAllStringSubmatch(described(t), -1)
	seen := make(map[string]error)
	for i, row := range rows {
		verdict, goName, pythonName, cxxName := row[2], row[3], row[4], row[5]
		seen[verdict] = verdicts[verdict]
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("row %d is numbered %s", i+1, row[1])
		}
		if !strings.Contains(inGo, fmt.Sprintf("%q: %s,", verdict, goName)) {
			t.Errorf("Go does not call %s %s", verdict, goName)
		}
		class := fmt.Sprintf(`(?s)class %s\(FrameError\):[^=]*verdict = "%s"`, pythonName, verdict)
		if !regexp.MustCompile(class).MatchString(inPython) {
			t.Errorf("Python does not call %s %s", verdict, pythonName)
		}
		if !strings.Contains(inCXX, fmt.Sprintf("case %s: return %q;", cxxName, verdict)) {
			t.Errorf("C++ does not call %s %s", verdict, cxxName)
		}
	}
	if len(rows) < len(verdicts) || !maps.Equal(seen, verdicts) {
		t.Errorf("docs/wire.md lists %v, want %v", slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(verdicts)))
	}
}
