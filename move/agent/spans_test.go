package agent_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/tcp"
	"meridian/move/mem"
)

func guardedTCP(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	return tcp.Open(ctx, tcp.Options{
		Agent: self.Name, Incarnation: self.Incarnation, Listen: "127.0.0.1:0",
		Events: self.Events, Guard: self.Guard, Metadata: self.Metadata, Logger: self.Logger,
	})
}

// every is one piece of each block of a region, at equal distances.
func every(r agent.RegionInfo, from, length, stride, count uint64) fabric.List {
	part := fabric.Part{Region: r.ID, Epoch: r.Epoch}
	for i := range count {
		if err := part.Spans.Add(from+i*stride, length); err != nil {
			panic(err)
		}
	}
	return fabric.List{part}
}

// prepareSpans makes a request of spans.
func prepareSpans(a *side, op fabric.Op, local fabric.List, p *agent.Peer, remote fabric.List) (*agent.Request, error) {
	here, err := a.LocalSpans(local)
	if err != nil {
		return nil, err
	}
	there, err := p.RemoteSpans(remote)
	if err != nil {
		return nil, err
	}
	return a.Prepare(op, agent.Side{List: here}, agent.Side{List: there})
}

// spans is all of a list of s's memory.
func (s *side) spans(t *testing.T, l fabric.List) agent.Side {
	t.Helper()
	list, err := s.LocalSpans(l)
	if err != nil {
		t.Fatal(err)
	}
	return agent.Side{List: list}
}

// Strided runs move as they are, under a grant that opens exactly them.
func TestSpans(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a", Fabrics: []agent.Opener{guardedTCP}}), start(t, agent.Options{Name: "b", Fabrics: []agent.Opener{guardedTCP}})
	peer, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	local, remote := every(a.region, 64, 512, 4096, 100), every(b.region, 0, 1024, 8192, 50)
	request, err := prepareSpans(a, fabric.Read, local, peer, remote)
	if err != nil {
		t.Fatal(err)
	}
	defer request.Release()
	read := func(grant [16]byte) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tr, err := request.Post(ctx, agent.PostOptions{Grant: grant})
		if err != nil {
			return err
		}
		return tr.Await(ctx)
	}
	if err := read([16]byte{}); !errors.Is(err, fabric.ErrNoGrant) {
		t.Fatalf("without a grant: %v", err)
	}
	short, err := b.Grant(agent.GrantOptions{Peer: "a", Op: fabric.Read, Side: b.spans(t, every(b.region, 0, 1024, 8192, 49)), For: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := read(short); !errors.Is(err, fabric.ErrGrantSpans) {
		t.Fatalf("with a grant that opens less: %v", err)
	}
	grant, err := b.Grant(agent.GrantOptions{Peer: "a", Incarnation: a.Incarnation(), Op: fabric.Read, Side: b.spans(t, remote), For: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := read(grant); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(100) {
		if !bytes.Equal(a.arena.Bytes(64+i*4096, 512), b.arena.Bytes(i/2*8192+i%2*512, 512)) {
			t.Fatalf("piece %d differs", i)
		}
	}
}

func TestSpansAreChecked(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	peer, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	good := every(a.region, 0, 16, 32, 4)
	far := every(a.region, a.region.Length-8, 16, 16, 1)
	unknown, stale := every(a.region, 0, 16, 32, 4), every(a.region, 0, 16, 32, 4)
	unknown[0].Region, stale[0].Epoch = 99, 99
	for name, c := range map[string]struct {
		local, remote fabric.List
		want          error
	}{
		"lengths":        {good, every(b.region, 0, 16, 32, 5), fabric.ErrLengths},
		"unknown here":   {unknown, every(b.region, 0, 16, 32, 4), fabric.ErrUnknownRegion},
		"unknown there":  {good, unknown, fabric.ErrUnknownRegion},
		"stale":          {stale, every(b.region, 0, 16, 32, 4), fabric.ErrStaleEpoch},
		"beyond its end": {far, every(b.region, 0, 16, 32, 1), nil},
	} {
		if _, err := prepareSpans(a, fabric.Write, c.local, peer, c.remote); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := prepareSpans(b, fabric.Write, good, peer, good); err == nil {
		t.Error("another agent's peer was taken")
	}
	for name, o := range map[string]agent.GrantOptions{
		"no peer": {Op: fabric.Read, For: time.Minute}, "nothing": {Peer: "b", For: time.Minute}, "never": {Peer: "b", Op: fabric.Read},
	} {
		o.Side = a.spans(t, good)
		if _, err := a.Grant(o); err == nil {
			t.Errorf("a grant for %s", name)
		}
	}
	theirs, err := peer.RemoteSpans(every(b.region, 0, 16, 32, 4))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Grant(agent.GrantOptions{Peer: "b", Op: fabric.Read, Side: agent.Side{List: theirs}, For: time.Minute}); err == nil {
		t.Error("a grant for the peer's own memory")
	}
}

// The parts of a list of spans are picked by index, like descriptors.
func TestSpansByIndex(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	peer, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	parts := func(s *side) fabric.List {
		return append(every(s.region, 0, 512, 4096, 2), every(s.region, 1<<20, 512, 4096, 2)...)
	}
	theirs, err := peer.RemoteSpans(parts(b))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		local, remote []int32
		want          error
	}{{[]int32{1}, []int32{0}, nil}, {[]int32{1}, nil, fabric.ErrLengths}, {[]int32{2}, []int32{0}, mem.ErrBounds}} {
		own := a.spans(t, parts(a))
		own.Indices = c.local
		r, err := a.Prepare(fabric.Write, own, agent.Side{List: theirs, Indices: c.remote})
		if !errors.Is(err, c.want) {
			t.Fatalf("%v to %v: %v", c.local, c.remote, err)
		}
		if err == nil {
			defer r.Release()
			transfer(t, r, agent.PostOptions{})
		}
	}
	if !bytes.Equal(a.arena.Bytes(1<<20+4096, 512), b.arena.Bytes(4096, 512)) {
		t.Error("the second part did not arrive in the place of the first")
	}
}

// NotifyUnordered does not wait for what was posted before, and says whether it arrived.
func TestNotifyUnordered(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b", Inbox: agent.InboxLimits{Count: 1}})
	peer, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := peer.NotifyUnordered(ctx, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := peer.NotifyUnordered(ctx, []byte("two")); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("into a full inbox: %v", err)
	}
	if n := <-b.Notifications(); string(n.Payload) != "one" || n.From != "a" {
		t.Errorf("%+v", n)
	}
	if records := a.Transfers(); len(records) != 0 {
		t.Errorf("%d records of what was only said", len(records))
	}
}
