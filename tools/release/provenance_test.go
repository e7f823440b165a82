package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestProvenanceShape(t *testing.T) {
	build := &Build{Stamp: someStamp(t), Dirty: true, Tools: map[string]string{"go": "go1.26.8"}}
	path := filepath.Join(t.TempDir(), "p.json")
	if err := writeStatement(path, newStatement(build, Sums{"b.whl": "02", "a.tar.gz": "01"})); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	predicate := got["predicate"].(map[string]any)
	if statement, _ := predicate["meridian_unsigned"].(string); !strings.Contains(statement, "not signed") {
		t.Errorf("does not say that it is unsigned: %q", statement)
	}
	delete(predicate, "meridian_unsigned")
	const want = `{
		"_type": "https://in-toto.io/Statement/v1",
		"subject": [{"name": "a.tar.gz", "digest": {"sha256": "01"}}, {"name": "b.whl", "digest": {"sha256": "02"}}],
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": {
			"buildDefinition": {
				"buildType": "urn:x-meridian:release:v1",
				"externalParameters": {"version": "v0.2.0-rc.1", "targets": ["linux/amd64", "linux/arm64"]},
				"resolvedDependencies": [{
					"name": "source",
					"digest": {"gitCommit": "59c2afefa0e7851a2b6299cb2d975950f1d3cb90"},
					"annotations": {"dirty": true}
				}]
			},
			"runDetails": {"builder": {"id": "urn:x-meridian:builder:make-release", "version": {"go": "go1.26.8"}}}
		}
	}`
	var wanted map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("got %s", text)
	}
}
