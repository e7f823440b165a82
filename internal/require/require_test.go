package require

import (
	"runtime"
	"testing"
)

func TestRequired(t *testing.T) {
	t.Setenv("MERIDIAN_REQUIRE", "cc, c++,zsh")
	for component, want := range map[string]bool{"cc": true, "c++": true, "zsh": true, "c": false, "": false, "bash": false} {
		if Required(component) != want {
			t.Errorf("%q is required: %v", component, !want)
		}
	}
}

// recorder is a test that remembers how it ended.
type recorder struct {
	testing.TB
	failed, skipped bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Fatalf(string, ...any) { r.failed = true; runtime.Goexit() }
func (r *recorder) Skip(...any)           { r.skipped = true; runtime.Goexit() }

func TestSkip(t *testing.T) {
	for name, c := range map[string]struct {
		demanded, component string
		want                recorder
	}{
		"missing":              {"cc", "c++", recorder{skipped: true}},
		"missing and demanded": {"cc, c++", "c++", recorder{failed: true}},
		"not listed":           {"", "lunch", recorder{failed: true}},
	} {
		t.Setenv("MERIDIAN_REQUIRE", c.demanded)
		var got recorder
		done := make(chan struct{})
		go func() {
			defer close(done)
			Skip(&got, c.component, "gone")
		}()
		<-done
		if got != c.want {
			t.Errorf("%s: failed %v, skipped %v", name, got.failed, got.skipped)
		}
	}
}
