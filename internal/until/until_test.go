package until_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/until"
)

// failures is what a test was told to fail with.
type failures []string

func (*failures) Helper() {}

func (f *failures) Fatalf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func TestItIsAskedUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		until.True(t, "a second has passed", func() bool { asked++; return time.Since(began) >= time.Second })
		if late := time.Since(began) - time.Second; late > 20*time.Millisecond || asked > 60 {
			t.Errorf("it took %v too long and was asked %d times", late, asked)
		}
		until.Well(t, "two seconds have passed", func() string {
			if since := time.Since(began); since < 2*time.Second {
				return since.String()
			}
			return ""
		})
	})
}

func TestItIsNotAskedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, wait := range map[string]func(until.Failer){
			"not within 1m0s: the moon":         func(f until.Failer) { until.True(f, "the moon", func() bool { return false }) },
			"not within 1m0s: the moon: 3 of 4": func(f until.Failer) { until.Well(f, "the moon", func() string { return "3 of 4" }) },
			"not within 3s: the moon":           func(f until.Failer) { until.Within(3*time.Second).True(f, "the moon", func() bool { return false }) },
			"not within 3s: the moon: no ladder %": func(f until.Failer) {
				until.Within(3*time.Second).Well(f, "the moon", func() string { return "no ladder %" })
			},
		} {
			var got failures
			if wait(&got); len(got) != 1 || got[0] != want {
				t.Errorf("failed with %q, want %q", got, want)
			}
		}
	})
}

// A machine that stood still while it became so is not to blame.
func TestItIsAskedOnceMoreWhenItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		until.Within(time.Second).True(t, "it is asked twice", func() bool {
			asked++
			time.Sleep(time.Hour)
			return asked == 2
		})
	})
}
