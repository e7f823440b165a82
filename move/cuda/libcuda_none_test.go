//go:build !accel

package cuda_test

import (
	"errors"
	"testing"

	"meridian/move/cuda"
)

func TestOtherBuildsSaySo(t *testing.T) {
	if _, err := cuda.Open(cuda.Options{}); !errors.Is(err, cuda.ErrUnsupported) {
		t.Errorf("without the tag: %v", err)
	}
	if _, err := cuda.List(nil); !errors.Is(err, cuda.ErrUnsupported) {
		t.Errorf("without the tag: %v", err)
	}
}
