package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/decide/phase"
)

// The corpus in testdata/config is read by the Python package's tests as well:
// both sides give every file the same verdict, with the same dotted paths.
//
//	good/*.toml   first line "# good: why", then any of
//	              "# sets: path = value" and "# markers: model [start ids] [end ids]"
//	bad/*.toml    first line "# faults: path, path", sorted; (syntax) is no path
//	env.txt       environment overrides; it says how to read it
const corpus = "../../testdata/config"

func corpusFiles(t *testing.T, kind string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(corpus, kind, "*.toml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s files: %v", kind, err)
	}
	return files
}

// notes returns what follows "# name: " on the comment lines that open a file.
func notes(t *testing.T, file, name string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		text, isComment := strings.CutPrefix(strings.TrimSpace(string(line)), "# ")
		if !isComment {
			break
		}
		if note, ours := strings.CutPrefix(text, name+": "); ours {
			found = append(found, note)
		}
	}
	return found
}

// faultPaths returns the sorted paths of err's faults, as the corpus writes them.
func faultPaths(t *testing.T, err error) string {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not a list of faults", err)
	}
	var paths []string
	for _, f := range e.Faults {
		if f.Path == "" {
			f.Path = "(syntax)"
		}
		paths = append(paths, f.Path)
	}
	slices.Sort(paths)
	return strings.Join(paths, ", ")
}

// shown writes a setting as the corpus does.
func shown(value any) string {
	switch v := value.(type) {
	case []uint32:
		return displayIDs(v)
	case []string:
		var list []string
		for _, text := range v {
			list = append(list, display(text))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	return display(value)
}

// asRead is a value as a file would give it.
func asRead(value any) any {
	read := []any{}
	switch list := value.(type) {
	case []string:
		for i := range list {
			read = append(read, list[i])
		}
	case []uint32:
		for i := range list {
			read = append(read, int64(list[i]))
		}
	default:
		return value
	}
	return read
}

func checkSetting(t *testing.T, l *Loaded, note string) {
	t.Helper()
	path, want, _ := strings.Cut(note, " = ")
	if got := shown(l.settings[path].value); got != want {
		t.Errorf("%s is %s, want %s", path, got, want)
	}
}

func checkMarkers(t *testing.T, l *Loaded, note string) {
	t.Helper()
	name, rest, _ := strings.Cut(note, " ")
	decoder := json.NewDecoder(strings.NewReader(rest))
	for _, markers := range [][]phase.Marker{l.Model[name].Markers.Start, l.Model[name].Markers.End} {
		want, got := [][]uint32{}, [][]uint32{}
		if err := decoder.Decode(&want); err != nil {
			t.Fatal(err)
		}
		for _, m := range markers {
			got = append(got, append([]uint32{}, m.IDs...))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("markers of %s: %s", name, diff)
		}
	}
}

func TestCorpusGood(t *testing.T) {
	for _, file := range corpusFiles(t, "good") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if len(notes(t, file, "good")) != 1 {
				t.Error(`the first line is not "# good: why"`)
			}
			l, err := Load(Options{Path: file, Environ: []string{}})
			if err != nil {
				t.Fatal(err)
			}
			for _, note := range notes(t, file, "sets") {
				checkSetting(t, l, note)
			}
			for _, note := range notes(t, file, "markers") {
				checkMarkers(t, l, note)
			}
		})
	}
}

func TestCorpusBad(t *testing.T) {
	for _, file := range corpusFiles(t, "bad") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(Options{Path: file, Environ: []string{}})
			got := faultPaths(t, err)
			if diff := cmp.Diff(notes(t, file, "faults"), []string{got}); diff != "" {
				t.Errorf("%s\n%v", diff, err)
			}
			for _, f := range err.(*Error).Faults {
				checkFault(t, f, file)
			}
		})
	}
}

// A fault of a file says where; one of a value says what was given, unless the
// fault is that nothing was.
func checkFault(t *testing.T, f Fault, source string) {
	t.Helper()
	if f.Source != source || f.Reason == "" {
		t.Errorf("a fault without its source or a reason: %+v", f)
	}
	if f.Line == 0 || f.Column == 0 {
		t.Errorf("a fault without its place: %+v", f)
	}
	ofAValue := regexp.MustCompile(`^must (be|name|not|share) |^no such marker|^disagrees|^cannot be read|^this build`)
	absent := strings.HasPrefix(f.Reason, "must be given")
	if ofAValue.MatchString(f.Reason) && !absent && f.Given == "" {
		t.Errorf("a fault without what was given: %+v", f)
	}
}

var envVariable = regexp.MustCompile(`([A-Za-z0-9_.-]+)=("(?:[^"\\]|\\.)*")`)

func TestCorpusEnvironment(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(corpus, "env.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			t.Fatalf("not four columns: %s", line)
		}
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		name, file, variables, want := columns[0], columns[1], columns[2], columns[3]
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), Home: t.TempDir(), Environ: []string{}}
			t.Chdir(corpus)
			if file != "-" {
				o.Path = file
			}
			for _, match := range envVariable.FindAllStringSubmatch(variables, -1) {
				var value string
				if err := json.Unmarshal([]byte(match[2]), &value); err != nil {
					t.Fatal(err)
				}
				o.Environ = append(o.Environ, match[1]+"="+value)
			}
			l, err := Load(o)
			setting, ok := strings.CutPrefix(want, "ok")
			switch {
			case !ok:
				if got := faultPaths(t, err); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if strings.HasPrefix(err.Error(), ": ") {
					t.Errorf("a fault without a source: %v", err)
				}
			case err != nil:
				t.Fatal(err)
			case setting != "":
				checkSetting(t, l, strings.TrimSpace(setting))
			}
		})
	}
}
