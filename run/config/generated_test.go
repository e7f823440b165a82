package config

import (
	"testing"

	"meridian/internal/golden"
)

func TestGeneratedFiles(t *testing.T) {
	golden.File(t, "../../python/meridian/schema.json", SchemaJSON())
	golden.Section(t, "../../docs/configuration.md", "reference", Reference())
}
