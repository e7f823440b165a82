package transceiver_test

import (
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// What homes say to one another does not stand in line behind the bytes that it
// is about. A notification does: it is what makes "the data is there" true.
func TestMessagesOvertakeBytes(t *testing.T) {
	const size, posts = 32 << 20, 16
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	lent := func(n *node) fabric.List {
		arena, err := mem.NewArena(mem.ArenaOptions{Name: n.member.Name, SizeBytes: size, NUMANode: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := arena.Close(soon(t)); err != nil {
				t.Error(err)
			}
		})
		region, err := n.agent.Register(arena.Section, "bulk")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.agent.Deregister(soon(t), region.ID); err != nil {
				t.Error(err)
			}
		})
		part := fabric.Part{Region: region.ID, Epoch: region.Epoch}
		if err := part.Spans.Add(0, size); err != nil {
			t.Fatal(err)
		}
		return fabric.List{part}
	}
	local, remote := lent(p), lent(d)
	opened, err := d.agent.LocalSpans(remote)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := d.agent.Grant(agent.GrantOptions{Peer: "p", Op: fabric.Write, Side: agent.Side{List: opened}, For: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := p.agent.LoadMetadata(d.agent.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	here, err := p.agent.LocalSpans(local)
	if err != nil {
		t.Fatal(err)
	}
	there, err := peer.RemoteSpans(remote)
	if err != nil {
		t.Fatal(err)
	}
	var bulk []*agent.Transfer
	for range posts {
		request, err := p.agent.Prepare(fabric.Write, agent.Side{List: here}, agent.Side{List: there})
		if err != nil {
			t.Fatal(err)
		}
		defer request.Release()
		transfer, err := request.Post(soon(t), agent.PostOptions{Grant: grant})
		if err != nil {
			t.Fatal(err)
		}
		bulk = append(bulk, transfer)
	}
	running := func() (n int) {
		for _, transfer := range bulk {
			if state, _ := transfer.Status(); !state.Ended() {
				n++
			}
		}
		return n
	}
	if err := peer.NotifyUnordered(soon(t), []byte("a word")); err != nil {
		t.Fatal(err)
	}
	if running() == 0 {
		t.Errorf("a word came after all of %d transfers of %d bytes", posts, size)
	}
	if err := peer.Notify(soon(t), []byte("the data is there")); err != nil {
		t.Fatal(err)
	}
	if n := running(); n > 0 {
		t.Errorf("a notification came before %d of the transfers", n)
	}
}
