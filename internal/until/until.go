// Package until lets a test wait for what becomes true by itself, in another
// goroutine or another process: it is asked again and again, and never for ever.
// What a channel tells, or a synctest bubble, needs no such wait.
package until

import "time"

const (
	// patience only ends tests that failed: a machine stands still for seconds at times.
	patience = Within(time.Minute)

	shortestPause = time.Millisecond
	longestPause  = 20 * time.Millisecond
	costlyPause   = 200 * time.Millisecond // at most, after what took long to ask
)

// Failer is what fails when a wait was in vain: a test, a benchmark, a fuzz test.
type Failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// True waits until something holds, a minute at most.
func True(t Failer, what string, holds func() bool) {
	t.Helper()
	patience.True(t, what, holds)
}

// Well waits until there is no complaint, a minute at most.
func Well(t Failer, what string, complaint func() string) {
	t.Helper()
	patience.Well(t, what, complaint)
}

// Within is how long something may take.
type Within time.Duration

// True waits until something holds.
func (d Within) True(t Failer, what string, holds func() bool) {
	t.Helper()
	if !d.wait(holds) {
		t.Fatalf("not within %v: %s", time.Duration(d), what)
	}
}

// Well waits until there is no complaint. The last one says what was still not well.
func (d Within) Well(t Failer, what string, complaint func() string) {
	t.Helper()
	last := ""
	if !d.wait(func() bool { last = complaint(); return last == "" }) {
		t.Fatalf("not within %v: %s: %s", time.Duration(d), what, last)
	}
}

func (d Within) wait(holds func() bool) bool {
	began := time.Now()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		asked := time.Now()
		left := time.Duration(d) - asked.Sub(began)
		switch {
		case holds(): // asked once more when it is late: this goroutine alone may have stood still
			return true
		case left <= 0:
			return false
		}
		took := time.Since(asked)
		time.Sleep(min(max(pause, min(4*took, costlyPause)), left))
	}
}
