package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/move/fabric"
	"meridian/see/telemetry"
)

// What a fabric knows to do about its errors is told like every other advice.
func TestHintsOfFabrics(t *testing.T) {
	gone := &fabric.Error{Op: "read", Subject: "b", Err: &fabric.Error{Op: "connect", Subject: "b", Err: fabric.ErrPeerGone, Hint: "start it"}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("receive a file: %w", gone), "hint: start it\n"},
		{errors.Join(errors.New("other"), fabric.ErrGrantExpired), "hint: " + fabric.Hint(fabric.ErrGrantExpired) + "\n"},
	} {
		var out bytes.Buffer
		if reportFailure(&out, telemetry.LogOptions{}, c.err); !strings.HasSuffix(out.String(), c.want) {
			t.Errorf("%q, want %q at its end", out.String(), c.want)
		}
	}
}
