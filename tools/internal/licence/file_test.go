package licence

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCollectLooksWhereLinkedCodeLies(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"LICENSE":               isc,
		"NOTICE.txt":            "Copyright an author",
		"license.go":            "package x",
		"licensed":              "not a licence file",
		"internal/LICENSE-zlib": zlib,
		"internal/deep/x.go":    "package deep",
		"unlinked/COPYING":      gpl3,
	})
	files, err := Collect(root, []string{filepath.Join(root, "internal", "deep"), root})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		found = append(found, file.Path+"="+strings.Join(file.IDs, "+"))
	}
	want := []string{"LICENSE=ISC", "NOTICE.txt=", "internal/LICENSE-zlib=Zlib"}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	ids, err := IDs(files)
	if err != nil || !reflect.DeepEqual(ids, []string{"ISC", "Zlib"}) {
		t.Errorf("IDs = %v, %v", ids, err)
	}
}

func TestIDsRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, files := range map[string][]File{
		"no file":           nil,
		"only a notice":     {{Path: "NOTICE"}},
		"one known, one no": {{Path: "LICENSE", IDs: []string{"MIT"}}, {Path: "COPYING"}},
	} {
		if ids, err := IDs(files); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: IDs = %v, %v; want %v", name, ids, err, ErrUnknown)
		}
	}
}
