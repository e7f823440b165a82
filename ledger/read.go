package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// FindIn looks for a record in the files of a state directory, whoever wrote
// them. A request that was recorded twice is told as it was last.
func FindIn(dir, id string) (*Record, error) {
	needle := []byte(id)
	var found *Record
	err := readFiles(dir, func(line []byte) {
		if !bytes.Contains(line, needle) {
			return
		}
		var r Record
		if json.Unmarshal(line, &r) == nil && r.ID == id {
			found = &r
		}
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%w: %s", ErrNoRecord, id)
	}
	return found, err
}

// LatestIn returns up to n records of a state directory, the newest first.
func LatestIn(dir string, n int) ([]*Record, error) {
	ring := make([]*Record, 0, n)
	at := 0
	err := readFiles(dir, func(line []byte) {
		var r Record
		if json.Unmarshal(line, &r) != nil || r.ID == "" {
			return
		}
		if len(ring) < n {
			ring = append(ring, &r)
			return
		}
		ring[at] = &r
		at = (at + 1) % n
	})
	newestFirst := make([]*Record, 0, len(ring))
	for i := range ring {
		newestFirst = append(newestFirst, ring[(at+len(ring)-1-i)%len(ring)])
	}
	return newestFirst, err
}

// maxLine is longer than any record: a file with longer lines is not ours.
const maxLine = 1 << 20

// readFiles hands over every line, the oldest first. What is no record is for
// the caller to pass over: a crash may tear a line.
func readFiles(dir string, take func(line []byte)) error {
	for n := 1; n >= 0; n-- {
		file, err := os.Open(path(dir, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		err = readLines(file, take)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("ledger: %s: %w", path(dir, n), err)
		}
	}
	return nil
}

func readLines(r io.Reader, take func(line []byte)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		take(lines.Bytes())
	}
	return lines.Err()
}
