package etcd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"meridian/member/directory"
	"meridian/member/directory/directorytest"
	"meridian/member/directory/etcd"
	"meridian/member/directory/etcd/embedded"
)

// stateDir is short enough for a socket's path, unlike a test's own.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "meta")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func startServer(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.Open(t.Context(), embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stopServer(t *testing.T, s *embedded.Server) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// open has more patience than people have: the machine may be busy.
func open(t *testing.T, endpoint string) directory.Directory {
	t.Helper()
	const patience = 15 * time.Second
	d, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{endpoint}, CallTimeout: patience, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func world(t *testing.T) *directorytest.World {
	dir := stateDir(t)
	server := startServer(t, dir)
	t.Cleanup(func() { stopServer(t, server) })
	return &directorytest.World{
		TTL: 6 * time.Second,
		Open: func(t *testing.T) directorytest.Client {
			p := startProxy(t, strings.TrimPrefix(embedded.Endpoint(dir), "unix://"))
			return directorytest.Client{Directory: open(t, p.endpoint()), Reach: p.set}
		},
		Compact: func(t *testing.T) { compact(t, server.Endpoint()) },
		Stop:    func(t *testing.T) { stopServer(t, server) },
		Start:   func(t *testing.T) { server = startServer(t, dir) },
		Wipe: func(t *testing.T) {
			if err := os.RemoveAll(filepath.Join(dir, "directory")); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func compact(t *testing.T, endpoint string) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	now, err := c.Get(t.Context(), "any")
	if err == nil {
		_, err = c.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	directorytest.Run(t, world)
}

func TestDirectoryAlone(t *testing.T) { directorytest.RunAlone(t, world) }

func TestNamespacesAreApart(t *testing.T) {
	server := startServer(t, stateDir(t))
	defer stopServer(t, server)
	for _, namespace := range []string{"", "meridian-2", "cells/meridian"} {
		d, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{server.Endpoint()}, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Create(t.Context(), directory.Entry{Key: "a"}); err != nil {
			t.Errorf("%q: %v", namespace, err)
		}
		if all, err := d.List(t.Context(), ""); err != nil || len(all.Records) != 1 || all.Records[0].Key != "a" {
			t.Errorf("%q lists %+v, %v", namespace, all, err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]etcd.Options{
		"no endpoints":     {},
		"relative socket":  {Endpoints: []string{"unix://relative"}},
		"no scheme":        {Endpoints: []string{"localhost:2379"}},
		"no port":          {Endpoints: []string{"http://localhost"}},
		"no TLS":           {Endpoints: []string{"https://localhost:2379"}},
		"not a URL":        {Endpoints: []string{"http://[::1"}},
		"second is bad":    {Endpoints: []string{"http://localhost:2379", "ftp://localhost:21"}},
		"namespace climbs": {Endpoints: []string{"http://localhost:2379"}, Namespace: "../other"},
	} {
		d, err := etcd.Open(t.Context(), o)
		if !errors.Is(err, directory.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if d != nil {
			d.Close(t.Context())
		}
	}
}
