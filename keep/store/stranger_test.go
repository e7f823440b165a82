package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/fabric/tcp"
)

// authority makes certificates of one cell.
func authority(t *testing.T) func(name string, o *tcp.Options) {
	t.Helper()
	ca, err := trust.CreateAuthority(trust.AuthorityOptions{Dir: filepath.Join(t.TempDir(), "certificates")})
	if err != nil {
		t.Fatal(err)
	}
	return func(name string, o *tcp.Options) {
		files, err := ca.Issue(trust.Request{Name: name, Renew: true})
		if err == nil {
			o.TLS, err = trust.Open(trust.Options{Files: files, Name: name})
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// cellKey makes the key of one cell.
func cellKey(t *testing.T) func(name string, o *tcp.Options) {
	t.Helper()
	key, err := trust.OpenCellKey(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return func(_ string, o *tcp.Options) { o.Key = &key }
}

// A cell works over connections that prove who is at each end. A process that cannot prove it,
// though it knows the directory and every agent's address, reads nothing, stores nothing,
// and is told nothing: not as a client, and not as an owner.
func TestStrangersGetNothing(t *testing.T) {
	for name, prove := range map[string]func(*testing.T) func(string, *tcp.Options){"certificate": authority, "cell key": cellKey} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, "tcp")
			own, foreign := prove(t), prove(t)
			c.prove = func(name string, o *tcp.Options) {
				if name == "stranger" {
					foreign(name, o)
				} else {
					own(name, o)
				}
			}
			a := c.start("a", keeps(64<<20), candidate)
			client := c.start("client")
			for _, size := range sizes {
				key := fmt.Sprint("k", size)
				mustPut(t, client, key, size, store.PutOptions{})
				mustGet(t, client, key, size)
				mustGet(t, a, key, size)
			}
			if all, err := client.List(soon(t), store.ListOptions{}); err != nil || len(all) != len(sizes) {
				t.Fatalf("%d objects are listed: %v", len(all), err)
			}

			stranger := c.start("stranger", keeps(64<<20))
			until.True(t, "two owners", func() bool { return len(client.Owners()) == 2 && len(stranger.Owners()) == 2 })
			refused := func(what string, ask func(ctx context.Context) error) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
				defer cancel()
				if err := ask(ctx); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s by a stranger: %v, want ErrUnavailable", what, err)
				}
			}
			for _, size := range sizes {
				into := make([]byte, size)
				refused("get", func(ctx context.Context) error {
					_, err := stranger.Get(ctx, fmt.Sprint("k", size), into, store.GetOptions{Preferred: "a"})
					return err
				})
				for _, b := range into {
					if b != 0 {
						t.Fatal("wrong: bytes came to a stranger")
					}
				}
				refused("put", func(ctx context.Context) error {
					return stranger.Put(ctx, fmt.Sprint("new", size), value("x", size), store.PutOptions{Preferred: "a"})
				})
			}
			refused("list", func(ctx context.Context) error {
				_, err := stranger.List(ctx, store.ListOptions{Owner: "a"})
				return err
			})
			refused("remove", func(ctx context.Context) error { return stranger.Remove(ctx, "k1", store.RemoveOptions{}) })
			refused("has", func(ctx context.Context) error {
				_, err := stranger.Has(ctx, []string{"k1"}, store.HasOptions{})
				return err
			})
			refused("evict", func(ctx context.Context) error { _, err := stranger.EvictUntilBelow(ctx, "a", 0); return err })

			mustPut(t, client, "not for strangers", 1<<20, store.PutOptions{Preferred: "stranger"})
			if at, err := client.Locate(soon(t), "not for strangers", store.LocateOptions{}); err != nil || at.Owner != "a" {
				t.Errorf("it went to %s: %v", at.Owner, err)
			}
			if kept, _ := a.Kept(); kept.Ready != uint64(len(sizes)+1) {
				t.Errorf("a has %d objects", kept.Ready)
			}
			if m := stranger.Metrics(); m.MessagesHeard != 0 {
				t.Errorf("a stranger heard %d messages", m.MessagesHeard)
			}
		})
	}
}

// What is no message, or one that was not asked for, is counted and forgotten.
func TestStrangersSpeak(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", keeps(8<<20), candidate)
	b := c.start("b")
	mustPut(t, b, "k", 1000, store.PutOptions{})
	peer, err := b.agent.LoadMetadata(a.agent.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	for kind := range 40 {
		for _, body := range []string{"", "\x01", "\x80\x80\x80\x80\x80\x40\x00\x00\x00"} {
			err := peer.NotifyUnordered(soon(t), append([]byte("MRDS\x01"), append([]byte{byte(kind)}, body...)...))
			if err != nil && !errors.Is(err, fabric.ErrBusy) {
				t.Fatal(err)
			}
		}
	}
	until.True(t, "all were heard", func() bool { m := a.Metrics(); return m.MessagesBroken > 60 })
	mustGet(t, b, "k", 1000)
}
