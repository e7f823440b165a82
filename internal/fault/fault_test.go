package fault

import (
	"errors"
	"fmt"
	"testing"
)

type (
	named   struct{}
	unnamed struct{}
)

func (named) Name() string   { return "store" }
func (unnamed) Name() string { return "" }

func TestTexts(t *testing.T) {
	full := errors.New("full")
	for want, err := range map[string]error{
		"store: put a: full (delete some)": &Error[named]{Op: "put", Subject: "a", Err: full, Hint: "delete some"},
		"store: close: full":               &Error[named]{Op: "close", Err: full},
		"put a: full":                      &Error[unnamed]{Op: "put", Subject: "a", Err: full, Hint: "delete some"},
	} {
		if err.Error() != want || !errors.Is(err, full) {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

func TestRoomsAreToldApart(t *testing.T) {
	var mine *Error[named]
	var other *Error[unnamed]
	err := fmt.Errorf("at once: %w", &Error[named]{Op: "put", Err: errors.New("full")})
	if !errors.As(err, &mine) || errors.As(err, &other) {
		t.Errorf("%v is %v and %v", err, mine, other)
	}
}

func TestHints(t *testing.T) {
	full, gone := errors.New("full"), errors.New("gone")
	hints := Hints{{full, "delete some"}, {gone, "look it up again"}}
	for want, err := range map[string]error{
		"delete some":      errors.Join(gone, full),
		"look it up again": fmt.Errorf("b: %w", gone),
		"":                 errors.New("other"),
	} {
		if got := hints.For(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
