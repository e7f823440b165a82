package replay

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/decide/policy"
	"meridian/prove/replay/workload"
)

// A tenant that sends thousands at once does not hide the one request of another
// from a policy that is fair.
func TestAFloodHidesNoTenant(t *testing.T) {
	var requests []workload.Request
	for range 4000 {
		requests = append(requests, workload.Request{Prompt: 200, Output: 50})
	}
	for at := range time.Duration(5) {
		requests = append(requests, workload.Request{At: (at + 1) * time.Second, Prompt: 200, Output: 50, Tenant: 1})
	}
	fair, err := policy.New("meridian", policy.Options{FairTokens: 1000})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Config{Profile: simple(), Window: 64}, &workload.List{Requests: requests}, fair)
	if err != nil {
		t.Fatal(err)
	}
	if r.Fairness.Tenants != 2 || r.Fairness.Best > 10 || r.Fairness.Worst < 20 {
		t.Errorf("the flood slows itself down %.1f times, and the other tenant %.1f times", r.Fairness.Worst, r.Fairness.Best)
	}
}

// First come, first served: who is shown beyond the window, because of its
// tenant, is served no sooner.
func TestTheWindowMovesNoneForward(t *testing.T) {
	var requests []workload.Request
	for i := range int32(110) {
		requests = append(requests, workload.Request{Prompt: 10, Output: 5 + i/100, Tenant: i / 100})
	}
	c := Config{Profile: simple(), MaxSequences: 8}
	all := replayed(t, c, "stock", requests)
	c.Window = 8
	few := replayed(t, c, "stock", requests)
	if diff := cmp.Diff(all, few); diff != "" {
		t.Fatalf("with a window of 512 and of 8:\n%s", diff)
	}
}
