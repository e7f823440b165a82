package pypackage

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Pins maps canonical names to the exact version that a lock file fixes.
type Pins map[string]string

var pinForm = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\#]+)`)

// ReadPins reads the name==version lines of a requirements lock file; comments, hashes and options are passed over.
// A name pinned to two versions is an error.
func ReadPins(r io.Reader) (Pins, error) {
	pins := Pins{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		parts := pinForm.FindStringSubmatch(strings.TrimSpace(lines.Text()))
		if parts == nil {
			continue
		}
		name, version := CanonicalName(parts[1]), parts[2]
		if earlier := pins[name]; earlier != "" && earlier != version {
			return nil, fmt.Errorf("%s is pinned to %s and to %s", name, earlier, version)
		}
		pins[name] = version
	}
	return pins, lines.Err()
}
