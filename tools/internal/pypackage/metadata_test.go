package pypackage

import (
	"reflect"
	"strings"
	"testing"
)

func TestReadMetadata(t *testing.T) {
	const text = `Metadata-Version: 2.4
Name: Blake3
Version: 1.0.11
License: CC0-1.0 OR Apache-2.0
Requires-Dist: typing-extensions>=4.6.0 ; python_full_version < '3.12'
Requires-Dist: Some_Thing[fast] (>=1,<2); extra == 'dev'
Requires-Dist: plain

# A heading: and a body that is no header
`
	got, err := ReadMetadata(strings.NewReader(text))
	want := Metadata{
		Name: "Blake3", Version: "1.0.11", LicenceText: "CC0-1.0 OR Apache-2.0",
		Requires: []Requirement{
			{Name: "typing-extensions", Versions: ">=4.6.0", Marker: "python_full_version < '3.12'"},
			{Name: "some-thing", Versions: ">=1,<2", Marker: "extra == 'dev'"},
			{Name: "plain"},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if got.Requires[0].Optional() || !got.Requires[1].Optional() {
		t.Error("only the requirement of an extra is optional")
	}
}

func TestReadMetadataRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":            "",
		"without version":  "Name: x\n\n",
		"not headers":      "hello world\n\n",
		"requirement: URL": "Name: x\nVersion: 1\nRequires-Dist: y @ https://example.org/y.whl\n\n",
	} {
		if got, err := ReadMetadata(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestReadPins(t *testing.T) {
	const lock = `# made by pip-compile
--index-url somewhere
blake3==1.0.11 \
    --hash=sha256:00
Typing_Extensions==4.16.0 ; python_full_version < '3.12'  # via blake3
loose>=3
`
	got, err := ReadPins(strings.NewReader(lock))
	want := Pins{"blake3": "1.0.11", "typing-extensions": "4.16.0"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if pins, err := ReadPins(strings.NewReader("a==1\nA==2\n")); err == nil {
		t.Errorf("two versions of one name: read as %v", pins)
	}
}
