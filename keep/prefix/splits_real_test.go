//go:build real

package prefix_test

import "testing"

// Sixty pairs take seconds: too long for every run.
func TestRealRandomSplits(t *testing.T) { randomSplits(t, 60) }
