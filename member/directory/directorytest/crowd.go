package directorytest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"meridian/member/directory"
)

var aloneChecks = []check{
	{"a thousand keys and watchers", thousand},
	{"closing leaves nothing behind", closingLeavesNothing},
}

func thousand(t *testing.T, w *World) {
	const crowd = 1000
	d, base := w.client(t), home(t)
	lease := grant(t, d, directory.LeaseOptions{TTL: lasting})
	watches := make([]*directory.Watch, crowd)
	for i := range watches {
		watch, err := d.Watch(t.Context(), fmt.Sprintf("%s%04d/", base, i), 0)
		if err != nil {
			t.Fatal(err)
		}
		watches[i] = watch
	}
	deadline := time.After(5 * eventually)
	views := make([]directory.View, crowd)
	for i, watch := range watches { // all of them watch, before the first write
		select {
		case e := <-watch.Events():
			views[i].Apply(e)
		case <-deadline:
			t.Fatalf("watcher %d of %d has not begun", i, crowd)
		}
	}
	var writers sync.WaitGroup
	for lane := range 10 {
		writers.Go(func() {
			for i := lane; i < crowd; i += 10 {
				entry := directory.Entry{Key: fmt.Sprintf("%s%04d/a", base, i), Value: value("%d", i), Lease: lease}
				_, err := d.Put(t.Context(), entry)
				for tries := 1; errors.Is(err, directory.ErrUnavailable) && tries < 10; tries++ { // a busy machine's etcd gives up after seconds
					_, err = d.Put(t.Context(), entry)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	for i, watch := range watches {
		view := &views[i]
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
