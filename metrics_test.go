package meridian

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meridian/see/telemetry"
)

// Every metric of the catalogue is made by code that runs, in a room that is
// there; one that is planned is not, yet.
func TestMetricsAreProduced(t *testing.T) {
	var code strings.Builder
	for _, path := range sources(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(filepath.Base(path), "catalogue") && !strings.Contains(path, "testdata/") {
			code.Write(read(t, path))
		}
	}
	for _, m := range telemetry.Catalogue() {
		if _, listed := rooms[m.Room]; !listed && !m.Planned {
			t.Errorf("%s: there is no room %s", m.Name, m.Room)
		}
		if produced := regexp.MustCompile(`"` + m.Name + `"|metric:"([^"]* )?` + m.Name + `[", ]`).MatchString(code.String()); produced == m.Planned {
			t.Errorf("%s: produced: %v, planned: %v", m.Name, produced, m.Planned)
		}
	}
}

// Names in the source that look like metrics must be in the catalogue, so that
// code in any language cannot invent one.
func TestSourcesNameOnlyCataloguedMetrics(t *testing.T) {
	literal := regexp.MustCompile(`["'](meridian_[a-z0-9_]+)["']`)
	tag, named := regexp.MustCompile(`metric:"([^"]*)"`), regexp.MustCompile(`(meridian_[a-z0-9_]+)`)
	known := []string{ // members of kv_transfer_params
		"meridian_leg", "meridian_ticket", "meridian_transfer", "meridian_promised", "meridian_unused", "meridian_thought_end", "meridian_tokens", "meridian_move", "meridian_request", "meridian_answers",
		// and of vllm_xargs, with two slips of the pen
		"meridian_sequence", "meridian_max_think_tokens", "meridian_min_think_tokens", "meridian_entropy", "meridian_think_tokens", "meridian_max_thnik_tokens", "meridian_max_think_token",
	}
	for _, m := range telemetry.Catalogue() {
		known = append(known, m.Name)
	}
	for _, path := range sources(t, ".go", ".py") {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "tools/") {
			continue
		}
		found := literal.FindAllSubmatch(read(t, path), -1)
		for _, fields := range tag.FindAllSubmatch(read(t, path), -1) {
			found = append(found, named.FindAllSubmatch(fields[1], -1)...)
		}
		for _, match := range found {
			if !slices.Contains(known, string(match[1])) {
				t.Errorf("%s names %s, which is not in the catalogue", path, match[1])
			}
		}
	}
}
