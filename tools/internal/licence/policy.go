package licence

import (
	"errors"
	"fmt"
	"strings"
)

// Use says how far a dependency travels.
type Use int

const (
	// Shipped code is part of what users receive.
	Shipped Use = iota
	// TestOnly code runs on the machines of those who build Meridian and goes no further.
	TestOnly
)

func (u Use) String() string {
	if u == TestOnly {
		return "tests"
	}
	return "shipped code"
}

// An Allowance is one line of the policy.
type Allowance struct {
	ID       string
	TestOnly bool
	Why      string
}

// Allowed is the whole policy: what is not in this table is refused.
var Allowed = []Allowance{
	{ID: "Apache-2.0", Why: "our own licence; its NOTICE files travel in THIRD-PARTY-LICENSES.txt"},
	{ID: "MIT", Why: "asks only that its notice travels with the binary"},
	{ID: "BSD-2-Clause", Why: "asks only that its notice travels with the binary"},
	{ID: "BSD-3-Clause", Why: "as BSD-2-Clause, and not to advertise with the authors' names"},
	{ID: "ISC", Why: "asks only that its notice travels with the code"},
	{ID: "Zlib", Why: "asks only not to misrepresent the origin"},
	{ID: "CC0-1.0", Why: "dedicated to the public domain; no condition"},
	{ID: "Unlicense", Why: "dedicated to the public domain; no condition"},
	{ID: "PSF-2.0", Why: "permissive; the licence of Python itself and of packages split off from it"},
	{ID: "MPL-2.0", TestOnly: true, Why: "copyleft by file: shipping it would oblige us to offer those files' source"},
}

// ErrUnknown means that a licence text was not recognised, or that there was none.
var ErrUnknown = errors.New("unknown licence")

// ErrRefused means that a licence is known and not on the allowed list.
var ErrRefused = errors.New("licence not allowed")

// Judge returns nil when every one of ids is allowed for use.
func Judge(ids []string, use Use) error {
	if len(ids) == 0 {
		return ErrUnknown
	}
	var refused []string
	for _, id := range ids {
		if !allows(id, use) {
			refused = append(refused, id)
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%w in %v: %s", ErrRefused, use, strings.Join(refused, ", "))
	}
	return nil
}

func allows(id string, use Use) bool {
	for _, a := range Allowed {
		if a.ID == id {
			return use == TestOnly || !a.TestOnly
		}
	}
	return false
}

func unknownFile(path string) error {
	if path == "" {
		return fmt.Errorf("%w: there is no LICENSE or COPYING file", ErrUnknown)
	}
	return fmt.Errorf("%w in %s", ErrUnknown, path)
}
