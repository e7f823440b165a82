package directory

import (
	"fmt"
	"strings"
)

// Limits of what a directory takes.
const (
	MaxKeyBytes   = 512
	MaxValueBytes = 64 << 10
)

const keyHint = "keys are segments of letters, digits and -._~:@%+= joined by slashes; escape anything else"

// CheckKey tells whether key can name a record: segments joined by slashes,
// none of them empty, "." or "..", so that a key never means another one.
func CheckKey(key string) error {
	if problem := keyProblem(key); problem != "" {
		return invalid("check key", fmt.Sprintf("%.80q", key), problem, keyHint)
	}
	return nil
}

// CheckPrefix tells whether prefix can be listed and watched: "" is
// everything, anything else is a key and a slash, so that "agents/" never
// takes in "agents-of-others/".
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	key, whole := strings.CutSuffix(prefix, "/")
	problem := keyProblem(key)
	if !whole {
		problem = "it does not end in a slash"
	}
	if problem != "" {
		return invalid("check prefix", fmt.Sprintf("%.80q", prefix), problem, keyHint)
	}
	return nil
}

func keyProblem(key string) string {
	if len(key) > MaxKeyBytes {
		return fmt.Sprintf("it has %d bytes; %d is the limit", len(key), MaxKeyBytes)
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch {
		case segment == "":
			return "a segment is empty"
		case segment == "." || segment == "..":
			return fmt.Sprintf("%q is not a name", segment)
		}
		if at := strings.IndexFunc(segment, func(r rune) bool { return !keyRune(r) }); at >= 0 {
			return fmt.Sprintf("%.20q holds a character that keys do not", segment[at:])
		}
	}
	return ""
}

func keyRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~:@%+=", r)
}

func checkEntry(d *directory, e Entry) error {
	if err := CheckKey(e.Key); err != nil {
		return err
	}
	if len(e.Value) > MaxValueBytes {
		return invalid("check value", e.Key, fmt.Sprintf("it has %d bytes; %d is the limit", len(e.Value), MaxValueBytes),
			"a directory holds descriptions, not data")
	}
	if e.Lease != nil && e.Lease.directory != d {
		return invalid("check lease", e.Key, "the lease is of another directory", "grant it from the directory it is used with")
	}
	if e.While == (Guard{}) {
		return nil
	}
	if e.Lease != nil || e.While.Revision <= 0 {
		return invalid("check guard", e.Key, "it has a lease, or depends on no revision", "take the revision from the record that was read")
	}
	return CheckKey(e.While.Key)
}
