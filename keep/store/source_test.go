package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/keep/store/protocol"
)

// A put that is given up while the owner reads gives its memory back: whatever its
// caller writes there then is in no object. What may have happened, and did, is whole.
func TestPutsGiveUp(t *testing.T) {
	for _, fabricName := range []string{"tcp", "host"} {
		t.Run(fabricName, func(t *testing.T) {
			c := newCell(t, fabricName)
			owner := c.start("owner", keeps(64<<20), candidate)
			for _, putter := range []*node{c.start("client"), owner} {
				giveUpPuts(t, putter)
			}
			until.True(t, "nothing is being written", func() bool { stats, _ := owner.Kept(); return stats.Writing == 0 })
			for name, n := range c.nodes {
				until.True(t, "no grant of "+name, func() bool { return n.agent.Metrics().Grants == 0 })
			}
		})
	}
}

func giveUpPuts(t *testing.T, n *node) {
	const size = 2<<20 + 100
	buffer, err := n.Buffer(size)
	if err != nil {
		t.Fatal(err)
	}
	stored, given := 0, 0
	for i := range 60 {
		memory := buffer.Bytes()[:size]
		if i%2 == 0 {
			memory = make([]byte, size)
		}
		key := fmt.Sprint(n.name, i)
		copy(memory, value(key, size))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*50*time.Microsecond)
		err := n.Put(ctx, key, memory, store.PutOptions{})
		cancel()
		clear(memory)
		if err != nil {
			given++
		}
		until.True(t, "its end", func() bool {
			got, getErr := n.GetBytes(soon(t), key, store.GetOptions{})
			switch {
			case getErr == nil && !bytes.Equal(got, value(key, size)):
				t.Fatalf("%s: bytes that were never put", key)
			case getErr == nil:
				stored++
				getErr = n.Remove(soon(t), key, store.RemoveOptions{})
			case errors.Is(getErr, store.ErrMissing) && err != nil:
				getErr = nil
			}
			return getErr == nil
		})
	}
	if err := buffer.Close(soon(t)); err != nil {
		t.Error(err)
	}
	t.Logf("%s: %d were given up, %d were stored", n.name, given, stored)
}

// An owner that is asked to read what it was not let into, or what is not there, says so,
// and keeps nothing.
func TestPutFromNowhere(t *testing.T) {
	c := newCell(t, "tcp")
	owner := c.start("owner", keeps(16<<20), candidate)
	client := c.start("client")
	buffer, err := client.Buffer(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := client.agent.LoadMetadata(owner.agent.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	regions := client.agent.Regions()
	at := regions[len(regions)-1]
	for i, span := range []protocol.Span{
		{Region: at.ID, Epoch: at.Epoch, Length: 1 << 20},
		{Region: at.ID, Epoch: at.Epoch + 1, Length: 1 << 20},
		{Region: at.ID, Epoch: at.Epoch, Offset: 1 << 63, Length: 1 << 20},
		{Region: at.ID, Epoch: at.Epoch, Offset: 1, Length: 1 << 20},
		{Region: 999, Epoch: 1, Length: 1 << 20},
		{Region: at.ID, Epoch: at.Epoch, Length: 1 << 62},
		{},
	} {
		name, err := client.Name("", fmt.Sprint("k", i))
		if err != nil {
			t.Fatal(err)
		}
		before := owner.Metrics().MessagesSent
		message := protocol.AppendMessage(nil, uint64(i+1), &protocol.PutFrom{Name: name, Source: span, PatienceMs: 60_000})
		if err := peer.NotifyUnordered(soon(t), message); err != nil {
			t.Fatal(err)
		}
		until.True(t, fmt.Sprint("an answer to ", i), func() bool { return owner.Metrics().MessagesSent > before })
		if stats, _ := owner.Kept(); stats.Writing != 0 || stats.Ready != 0 {
			t.Errorf("%d: %d are written, %d can be found", i, stats.Writing, stats.Ready)
		}
	}
	if err := buffer.Close(soon(t)); err != nil {
		t.Error(err)
	}
}
