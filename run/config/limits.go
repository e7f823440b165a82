package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Beyond these limits lies what TOML allows and no configuration needs. They keep the work
// in proportion to the file, and both languages refuse the same: without them,
// each reader would stop at a depth, and at a year, of its own.
const (
	maxFileBytes = 128 << 10 // go-toml compares each key with all before it
	maxKeyBytes  = 256
	maxDepth     = 64 // of tables and lists in one another
)

// overLimit says which limit a value at path passes, and where; no reason means
// none. Below the schema's depth it names what the place is in.
func overLimit(path string, value any, depth int) (where, reason string) {
	if depth > maxDepth {
		return path, fmt.Sprintf("tables and lists stand in one another more than %d deep", maxDepth)
	}
	year := 1
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			inner := path
			if depth < deepestPath {
				inner = joinKey(path, key)
			}
			if len(key) > maxKeyBytes {
				return inner, fmt.Sprintf("a key is longer than %d bytes", maxKeyBytes)
			}
			if where, reason = overLimit(inner, v[key], depth+1); reason != "" {
				return where, reason
			}
		}
	case []any:
		for i, element := range v {
			inner := path
			if depth < deepestPath {
				inner = fmt.Sprintf("%s[%d]", path, i)
			}
			if where, reason = overLimit(inner, element, depth+1); reason != "" {
				return where, reason
			}
		}
	case time.Time:
		year = v.Year()
	case toml.LocalDate:
		year = v.Year
	case toml.LocalDateTime:
		year = v.Year
	}
	if year == 0 {
		return path, "there is no year 0"
	}
	return "", ""
}
