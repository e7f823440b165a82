package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/run/node"
)

// An offer is what any peer may send. Whatever it says, a receiver whose sender
// is not there ends without a file, without a piece of one, and without a mark
// outside its directory.
func FuzzOffer(f *testing.F) {
	n := openForOffers(f)
	for _, m := range []fileMessage{
		{Name: "a", Bytes: 100, Metadata: n.MetadataBlob(), Grant: "00000000000000000000000000000001"},
		{Name: "../b", Bytes: 100, Metadata: n.MetadataBlob()},
		{Name: "c/../../d", Bytes: 1, Metadata: n.MetadataBlob()},
		{Name: "e\x00f", Bytes: 1 << 39, Address: 1<<64 - 1, Metadata: n.MetadataBlob(), Grant: "xyz"},
		{Name: ".", Metadata: []byte("MRDM")},
	} {
		m.Kind = "offer"
		f.Add(m.encode())
	}
	f.Add([]byte(`{"kind":"offer","bytes":-1}`))
	f.Add([]byte(`[[[[[[`))
	outside := f.TempDir()
	inside := filepath.Join(outside, "in")
	if err := os.Mkdir(inside, 0o700); err != nil {
		f.Fatal(err)
	}
	std := &stdio{out: io.Discard, err: io.Discard}
	command := &recvCommand{Dir: inside}
	f.Fuzz(func(t *testing.T, said []byte) {
		var m fileMessage
		if json.Unmarshal(said, &m) != nil || m.Bytes > 1<<40 {
			return // not an offer, or larger than any disk of a test
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := command.receive(ctx, std, &commands{}, n, m, n.Name()); err == nil {
			t.Fatalf("received %q, which no agent offers", m.Name)
		}
		for dir, want := range map[string]int{inside: 0, outside: 1} {
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
				t.Fatalf("%q left %v in %s, %v", said, entries, dir, err)
			}
		}
	})
}

// A peer offers what is its own.
func TestOfferOfAnother(t *testing.T) {
	n := openForOffers(t)
	command, std := &recvCommand{Dir: t.TempDir()}, &stdio{out: io.Discard, err: io.Discard}
	offer := fileMessage{Kind: "offer", Name: "a", Bytes: 100, Metadata: n.MetadataBlob()}
	if err := command.receive(t.Context(), std, &commands{}, n, offer, "another"); err == nil || !strings.Contains(err.Error(), "of a file of receiver") {
		t.Errorf("%v", err)
	}
}

// openForOffers is an agent that receives; it is alone in its cell.
func openForOffers(f testing.TB) *node.Agent {
	f.Helper()
	n, err := node.OpenAgent(f.Context(), node.AgentOptions{
		Name: "receiver", StateDir: f.TempDir(), Fabrics: []string{"tcp"}, Listen: "127.0.0.1:0", NoDirectory: true,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			f.Error(err)
		}
	})
	return n
}
