package directorytest

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"meridian/internal/until"
	"meridian/member/directory"
)

// The world stays up, so that no goroutine ends for any other reason.
func closingLeavesNothing(t *testing.T, w *World) {
	warm := w.client(t)
	list(t, warm, "")
	before := goroutines()
	d, base := w.client(t), home(t)
	create(t, d, directory.Entry{Key: base + "a", Lease: grant(t, d, directory.LeaseOptions{TTL: w.TTL})})
	grant(t, d, directory.LeaseOptions{OnExpiry: directory.Surrender})
	var full *directory.Watch
	for range 10 {
		watch, err := d.Watch(context.Background(), base, 0)
		if err != nil {
			t.Fatal(err)
		}
		<-watch.Events()
		full = watch
	}
	churn(t, d, base, 2*directory.WatchQueue) // waits for a consumer that never comes
	until.True(t, "a full queue", func() bool { return len(full.Events()) == directory.WatchQueue })
	if len(goroutines()) < len(before)+12 { // two leases, ten watches
		t.Errorf("%d goroutines are too few to tell anything", len(goroutines()))
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until.Within(w.slack).Well(t, "it is as quiet as before", func() string {
		left := goroutines()
		if len(left) <= len(before) {
			return ""
		}
		return "there are\n" + strings.Join(left, "\n\n")
	})
}

// goroutines are those that run in a directory or in what its alcoves use,
// apart from the server's.
func goroutines() []string {
	stacks := make([]byte, 8<<20)
	var found []string
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		ours := strings.Contains(stack, "meridian/member/directory.(") || strings.Contains(stack, "meridian/member/directory/etcd.(") ||
			strings.Contains(stack, "etcd/client/v3")
		if ours && !strings.Contains(stack, "directorytest.closingLeavesNothing") {
			found = append(found, stack)
		}
	}
	return found
}
