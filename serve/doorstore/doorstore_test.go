package doorstore

import (
	"errors"
	"fmt"
	"testing"

	"meridian/keep/store"
	"meridian/serve/door"
)

// A key that another writes and an owner that has too much to do are two things.
func TestOverloadedIsNotExists(t *testing.T) {
	for err, code := range map[error]string{
		fmt.Errorf("%w: 9 requests of a go on at b", store.ErrOverloaded): door.CodeBusy,
		fmt.Errorf("put: %w", store.ErrBusy):                              door.CodeExists,
		fmt.Errorf("%w: b is silent", store.ErrUnavailable):               door.CodeUnavailable,
	} {
		var p *door.Problem
		if told := clientError(err); !errors.As(told, &p) || p.Code != code {
			t.Errorf("%v is told as %v", err, told)
		}
	}
}

func TestBytesThatChangedOnTheWayAreNoMiss(t *testing.T) {
	for err, want := range map[error]string{store.ErrTorn: door.CodeStale, store.ErrExists: door.CodeExists} {
		var p *door.Problem
		if told := committed(fmt.Errorf("at b: %w", err)); !errors.As(told, &p) || p.Code != want || p.Hint == "" {
			t.Errorf("%v is told as %+v, not as %s", err, told, want)
		}
	}
	if err := committed(nil); err != nil {
		t.Error(err)
	}
}

// An owner whose number is not known is not told as the first.
func TestARankThatIsNotKnown(t *testing.T) {
	gone := &writer{plan: &store.WritePlan{Owner: "a", Rank: -1}}
	if at := gone.Place(); at.Rank != -1 || at.Message().GetRank() != -1 {
		t.Errorf("a number that is not known is told as %d", at.Rank)
	}
}
