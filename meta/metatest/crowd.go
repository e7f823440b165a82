package metatest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"meridian/meta"
)

var aloneChecks = []check{
	{"a thousand keys and watchers", thousand},
	{"closing leaves nothing behind", closingLeavesNothing},
}

func thousand(t *testing.T, w *World) {
	const crowd = 1000
	d, base := w.client(t), home(t)
	lease := grant(t, d, meta.LeaseOptions{TTL: lasting})
	watches := make([]*meta.Watch, crowd)
	for i := range watches {
		watch, err := d.Watch(t.Context(), fmt.Sprintf("%s%04d/", base, i), 0)
		if err != nil {
			t.Fatal(err)
		}
		watches[i] = watch
	}
	var writers sync.WaitGroup
	for lane := range 10 {
		writers.Go(func() {
			for i := lane; i < crowd; i += 10 {
				if _, err := d.Create(t.Context(), meta.Entry{Key: fmt.Sprintf("%s%04d/a", base, i), Value: value("%d", i), Lease: lease}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	deadline := time.After(eventually)
	for i, watch := range watches {
		var view meta.View
		for {
			if r, has := view.Get(fmt.Sprintf("%s%04d/a", base, i)); has {
				if string(r.Value) != fmt.Sprint(i) || len(view.Records()) != 1 {
					t.Errorf("watcher %d sees %+v", i, view.Records())
				}
				break
			}
			select {
			case e := <-watch.Events():
				view.Apply(e)
			case <-deadline:
				t.Fatalf("watcher %d of %d has not heard", i, crowd)
			}
		}
	}
	if m := d.Metrics(); m.Watches != crowd || m.Leases != 1 {
		t.Errorf("counted %+v", m)
	}
	if all := list(t, d, base); len(all.Records) != crowd {
		t.Errorf("listed %d of %d", len(all.Records), crowd)
	}
	if err := lease.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := list(t, d, base); len(all.Records) != 0 {
		t.Errorf("%d outlived their lease", len(all.Records))
	}
}
