//go:build real

package protocol

import "testing"

// A million objects take seconds: too long for every run.
func TestRealAMillionObjects(t *testing.T) { manyObjects(t, 1_000_000) }
