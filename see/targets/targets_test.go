package targets

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/member/directory/memdir"
)

// What the directory says of targets is sorted, bounded, and says of loopback
// addresses of other machines that they are none of ours.
func TestTargets(t *testing.T) {
	d := openMemdir(t)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, v any) {
		t.Helper()
		value, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Put(t.Context(), directory.Entry{Key: key, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	put("targets/agent/far", Target{Kind: "agent", Name: "far", Host: "elsewhere", URL: "http://127.0.0.1:9464/metrics"})
	put("targets/agent/open", Target{Kind: "agent", Name: "open", Host: "elsewhere", URL: "http://10.0.0.7:9464/metrics", Unreachable: "so it says"})
	put("targets/gateway/g", Target{Kind: "gateway", Name: "g", Host: here, URL: "http://127.0.0.1:81/metrics"})
	put("targets/agent/broken", "not a target")
	put("targets/agent/strange", Target{Kind: "agent", Name: "strange\n", URL: "http://x/metrics"})
	put("targets/agent/nowhere", Target{Kind: "agent", Name: "nowhere", URL: "ftp://x"})
	put("engines/e1", directory.EngineRecord{ID: "e1", Home: "far", URL: "http://127.0.0.1:82/"})
	put("engines/e2", directory.EngineRecord{ID: "e2", Home: "unknown", URL: "https://10.0.0.8:83"})
	put("engines/silent", directory.EngineRecord{ID: "silent", Home: "far"})

	got, err := List(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	want := []Target{
		{
			Kind: "agent", Name: "far", Host: "elsewhere", URL: "http://127.0.0.1:9464/metrics",
			Unreachable: "its metrics are at a loopback address of elsewhere: give its telemetry.prometheus_listen one that others reach",
		},
		{Kind: "agent", Name: "open", Host: "elsewhere", URL: "http://10.0.0.7:9464/metrics"},
		{
			Kind: "engine", Name: "e1", Host: "elsewhere", URL: "http://127.0.0.1:82/metrics",
			Unreachable: "its metrics are at a loopback address of elsewhere: give its --listen one that others reach",
		},
		{Kind: "engine", Name: "e2", URL: "https://10.0.0.8:83/metrics"},
		{Kind: "gateway", Name: "g", Host: here, URL: "http://127.0.0.1:81/metrics"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// away is a directory that refuses the first leases.
type away struct {
	directory.Directory
	refusals int
}

func (a *away) Grant(ctx context.Context, o directory.LeaseOptions) (*directory.Lease, error) {
	if a.refusals > 0 {
		a.refusals--
		return nil, errors.New("away")
	}
	return a.Directory.Grant(ctx, o)
}

// A target is written as soon as the directory takes it, and leaves with its process.
func TestAnnouncementIsTriedAgain(t *testing.T) {
	d := openMemdir(t)
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	a := Announce(&away{Directory: d, refusals: 1}, Target{Kind: Agent, Name: "a"}, "[::]:9464", "10.1.2.3", logger)
	var got []Target
	until.True(t, "it is announced", func() bool {
		var err error
		if got, err = List(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		return len(got) > 0
	})
	if len(got) != 1 || got[0].URL != "http://10.1.2.3:9464/metrics" {
		t.Errorf("the directory has %v", got)
	}
	a.Close()
	if err := d.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func openMemdir(t *testing.T) directory.Directory {
	t.Helper()
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
