package main

import (
	"encoding/json"
	"os"

	"meridian/tools/internal/gomodule"
)

// A Statement is an in-toto statement, version 1, that carries SLSA provenance, version 1.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Provenance `json:"predicate"`
}

// A Resource is a file or a commit, told by its digest.
type Resource struct {
	Name        string            `json:"name"`
	Digest      map[string]string `json:"digest"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// Provenance says from what and how the subjects were made. It holds no time of day and no name of a machine, so
// that a second build states the same.
type Provenance struct {
	BuildDefinition BuildDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
	// Unsigned is an extension field, named as SLSA asks of those.
	Unsigned string `json:"meridian_unsigned"`
}

// BuildDefinition is what the build was asked to do.
type BuildDefinition struct {
	BuildType            string         `json:"buildType"`
	ExternalParameters   map[string]any `json:"externalParameters"`
	ResolvedDependencies []Resource     `json:"resolvedDependencies"`
}

// RunDetails is who did it.
type RunDetails struct {
	Builder Builder `json:"builder"`
}

// Builder is this program and the tools it used.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// Meridian has no address of its own yet to put these names under.
const (
	buildType = "urn:x-meridian:release:v1"
	builderID = "urn:x-meridian:builder:make-release"
	unsigned  = "This statement is not signed. It says how the subjects were made; it proves nothing about who says so."
)

func newStatement(b *Build, subjects Sums) Statement {
	targets := []string{}
	for _, goarch := range gomodule.Architectures {
		targets = append(targets, "linux/"+goarch)
	}
	statement := Statement{
		Type:          "https://in-toto.io/Statement/v1",
		PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: Provenance{
			BuildDefinition: BuildDefinition{
				BuildType:          buildType,
				ExternalParameters: map[string]any{"version": b.Stamp.Version.String(), "targets": targets},
				ResolvedDependencies: []Resource{{
					Name:        "source",
					Digest:      map[string]string{"gitCommit": b.Stamp.Commit},
					Annotations: map[string]any{"dirty": b.Dirty},
				}},
			},
			RunDetails: RunDetails{Builder: Builder{ID: builderID, Version: b.Tools}},
			Unsigned:   unsigned,
		},
	}
	for _, name := range subjects.Names() {
		statement.Subject = append(statement.Subject, Resource{
			Name: name, Digest: map[string]string{"sha256": subjects[name]},
		})
	}
	return statement
}

func writeStatement(path string, statement Statement) error {
	text, err := json.MarshalIndent(statement, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
