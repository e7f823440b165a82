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
	"path/filepath"
	"slices"
	"strings"
)

// FindIn looks for a record in the files of a state directory, which several
// processes may have written, by the request's id or by what its client called
// it. A request that was recorded twice is told as it was last.
func FindIn(dir, id string) (*Record, error) {
	found, err := findIn(dir, id, func(r *Record) bool { return r.ID == id })
	if errors.Is(err, ErrNoRecord) { // a client may call its request by another's id
		return findIn(dir, id, func(r *Record) bool { return r.ClientID == id })
	}
	return found, err
}

// findIn returns the last record that has a text in it, and is meant by it.
func findIn(dir, text string, isMeant func(*Record) bool) (*Record, error) {
	needle, err := json.Marshal(text) // as it stands in a line
	if err != nil {
		return nil, err
	}
	var found *Record
	skipped, err := ReadFile(filepath.Join(dir, FileName), func(line []byte) {
		if !bytes.Contains(line, needle) {
			return
		}
		var r Record
		if json.Unmarshal(line, &r) == nil && isMeant(&r) {
			found = &r
		}
	})
	switch {
	case err != nil || found != nil:
		return found, err
	case skipped > 0:
		return nil, fmt.Errorf("%w: %s, but for %d lines of %d bytes or more, which were passed over", ErrNoRecord, text, skipped, maxLine)
	}
	return nil, fmt.Errorf("%w: %s", ErrNoRecord, text)
}

// OfTransferIn looks for the request that a transfer was part of in the files of
// a state directory.
func OfTransferIn(dir, transfer string) (*Record, error) {
	return findIn(dir, transfer, func(r *Record) bool { return slices.Contains(r.Transfers(), transfer) })
}

// WithPrefixIn returns the ids of up to n requests in the files of a state
// directory that begin with prefix.
func WithPrefixIn(dir, prefix string, n int) (ids []string, err error) {
	needle := []byte(`"` + prefix)
	_, err = ReadFile(filepath.Join(dir, FileName), func(line []byte) {
		var r Record
		if len(ids) < n && bytes.Contains(line, needle) && json.Unmarshal(line, &r) == nil && strings.HasPrefix(r.ID, prefix) && !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	})
	return ids, err
}

// LatestIn returns up to n records of a state directory, the newest first, and
// how many lines were too long to be records.
func LatestIn(dir string, n int) (records []*Record, skipped int, err error) {
	ring := make([]*Record, 0, min(n, 1024)) // n may be more than there can be
	at := 0
	skipped, err = ReadFile(filepath.Join(dir, FileName), func(line []byte) {
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
	records = make([]*Record, 0, len(ring))
	for i := range ring {
		records = append(records, ring[(at+len(ring)-1-i)%len(ring)])
	}
	return records, skipped, err
}

// maxLine is longer than any record, were each character of its texts escaped.
const maxLine = 1 << 20

// ReadFile hands over every line that a File of that path has, the oldest first,
// and counts those that are too long. What is no record is for the caller to pass
// over: a crash may tear a line.
func ReadFile(path string, take func(line []byte)) (skipped int, err error) {
	for n := 1; n >= 0; n-- {
		file, err := os.Open(aged(path, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return skipped, fmt.Errorf("ledger: %w", err)
		}
		long, err := readLines(file, take)
		skipped += long
		if err = errors.Join(err, file.Close()); err != nil {
			return skipped, fmt.Errorf("ledger: %s: %w", aged(path, n), err)
		}
	}
	return skipped, nil
}

func readLines(r io.Reader, take func(line []byte)) (skipped int, err error) {
	lines := bufio.NewReaderSize(r, maxLine)
	within := false // a line that is too long
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if !within {
				within = true
				skipped++
			}
			continue
		case within:
			within = false
		default:
			take(bytes.TrimSuffix(line, []byte("\n")))
		}
		if errors.Is(err, io.EOF) {
			return skipped, nil
		}
		if err != nil {
			return skipped, err
		}
	}
}
