package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// everyText calls visit for every text of a record, wherever it stands: a field
// that is new is bounded, or fails the test.
func everyText(v reflect.Value, visit func(reflect.Value)) {
	switch v.Kind() {
	case reflect.String:
		visit(v)
	case reflect.Slice:
		for i := range v.Len() {
			everyText(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				everyText(v.Field(i), visit)
			}
		}
	}
}

func TestEveryTextIsBounded(t *testing.T) {
	long := strings.Repeat("<ä\x1b<<", 1<<20)
	given := &Record{Held: make([]Held, 1000), Legs: make([]Leg, 1000)}
	texts := 0
	everyText(reflect.ValueOf(given).Elem(), func(v reflect.Value) {
		v.SetString(long)
		texts++
	})
	dir := t.TempDir()
	l := open(t, Options{Dir: dir, Records: 1})
	l.Add(given)
	kept := l.Latest(1)[0]
	everyText(reflect.ValueOf(kept).Elem(), func(v reflect.Value) {
		text := v.String()
		if len(text) > 1<<10 || !utf8.ValidString(text) || !strings.Contains(text, "<ä <<<ä") || !strings.HasSuffix(text, "… (cut, 6291456 bytes)") {
			t.Fatalf("kept are %d bytes: %.100q", len(text), text)
		}
	})
	if texts < 7000 || given.Problem != long {
		t.Errorf("%d texts; the record that was given has changed: %v", texts, given.Problem != long)
	}
	closed(t, l)
	if got, skipped, err := LatestIn(dir, 1); err != nil || skipped > 0 || len(got) != 1 || got[0].Problem != kept.Problem || len(got[0].Legs) != maxParts {
		t.Errorf("on disk: %d records, %d lines too long, %v", len(got), skipped, err)
	}
	if as := boundedText(long[:1<<10]); len(as) != 1<<10 || strings.Contains(as, "cut") {
		t.Errorf("a text that is just short enough: %q", as)
	}
}

// What is too long is no record of ours, and hides none.
func TestLinesThatAreTooLong(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, FileName)
	for _, end := range []string{"", "\n"} {
		for _, length := range []int{maxLine - 1, maxLine, 3 * maxLine} {
			l := open(t, Options{Dir: dir})
			l.Add(record(1))
			closed(t, l)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, append(before, strings.Repeat("x", length)+end...), 0o600); err != nil {
				t.Fatal(err)
			}
			l = open(t, Options{Dir: dir, FileBytes: 64 << 20})
			l.Add(record(2))
			closed(t, l)
			for n := range 2 {
				if _, err := FindIn(dir, record(n+1).ID); err != nil {
					t.Errorf("%d bytes: record %d: %v", length, n+1, err)
				}
			}
			want := 1
			if length < maxLine {
				want = 0
			}
			records, skipped, err := LatestIn(dir, 9)
			if err != nil || len(records) != 2 || skipped != want {
				t.Errorf("%d bytes: %d records, %d lines passed over, %v", length, len(records), skipped, err)
			}
			if _, err := FindIn(dir, record(3).ID); !errors.Is(err, ErrNoRecord) || strings.Contains(err.Error(), "passed over") != (want == 1) {
				t.Errorf("%d bytes: %v", length, err)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
}
