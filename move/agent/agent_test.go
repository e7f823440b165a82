package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/directory/memdir"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/tcp"
	"meridian/move/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func overTCP(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	return tcp.Open(ctx, tcp.Options{
		Agent: self.Name, Incarnation: self.Incarnation, Listen: "127.0.0.1:0",
		Events: self.Events, Metadata: self.Metadata, Logger: self.Logger,
	})
}

// broken is a fabric that is there and cannot connect.
type broken struct{ fabric.Fabric }

func (broken) Name() string { return "broken" }

func (broken) Connect(context.Context, fabric.Peer) (fabric.Link, error) {
	return nil, fmt.Errorf("%w: as always", fabric.ErrPeerGone)
}

func overNothing(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	f, err := overTCP(ctx, self)
	return broken{f}, err
}

type side struct {
	*agent.Agent
	arena  *mem.Arena
	region agent.RegionInfo
}

func start(t *testing.T, o agent.Options) *side {
	t.Helper()
	if o.Fabrics == nil {
		o.Fabrics = []agent.Opener{overTCP}
	}
	a, err := agent.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	arena, err := mem.NewArena(mem.ArenaOptions{Name: o.Name, SizeBytes: 4 << 20, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	rand.Read(arena.Bytes(0, arena.Size()))
	region, err := a.Register(arena.Section, "kv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
		if n := arena.References(); n != 0 {
			t.Errorf("%s: %d references leaked", o.Name, n)
		}
		if err := arena.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &side{a, arena, region}
}

const block = 16 << 10

// descriptors names every second block, from the last to the first.
func (s *side) descriptors(n int) []agent.Descriptor {
	all := make([]agent.Descriptor, n)
	for i := range all {
		all[i] = agent.Descriptor{Address: s.region.Address + uint64(n-1-i)*2*block, Length: block}
	}
	return all
}

func (s *side) bytes(i, n int) []byte { return s.arena.Bytes(uint64(n-1-i)*2*block, block) }

func lists(t *testing.T, a *side, p *agent.Peer, b *side, n int) (*agent.List, *agent.List) {
	t.Helper()
	local, err := a.Local(a.descriptors(n))
	if err != nil {
		t.Fatal(err)
	}
	remote, err := p.Remote(b.descriptors(n))
	if err != nil {
		t.Fatal(err)
	}
	return local, remote
}

func transfer(t *testing.T, r *agent.Request, o agent.PostOptions) *agent.Transfer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tr, err := r.Post(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Await(ctx); err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTransfersByIndex(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	p, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	const n = 64
	local, remote := lists(t, a, p, b, n)
	for _, op := range []fabric.Op{fabric.Write, fabric.Read} {
		r, err := a.Prepare(op, agent.Side{List: local, Indices: []int32{3, 1, 2}}, agent.Side{List: remote, Indices: []int32{10, 60, 0}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		for round := range 3 {
			rand.Read(a.arena.Bytes(0, a.arena.Size()))
			rand.Read(b.arena.Bytes(0, b.arena.Size()))
			tr := transfer(t, r, agent.PostOptions{Notification: []byte{byte(round)}})
			for k, pair := range [][2]int{{3, 10}, {1, 60}, {2, 0}} {
				if !bytes.Equal(a.bytes(pair[0], n), b.bytes(pair[1], n)) {
					t.Errorf("%v round %d: pair %d differs", op, round, k)
				}
			}
			if got := <-b.Notifications(); got.From != "a" || got.Transfer != tr.ID || got.Payload[0] != byte(round) {
				t.Errorf("notification %+v", got)
			}
			if text := tr.Explain(); !strings.Contains(text, "done") || !strings.Contains(text, "tcp: ") {
				t.Errorf("explains itself as\n%s", text)
			}
		}
	}
	if m := a.Metrics(); m.Posted != 6 || m.Done != 6 || m.BytesWritten != 3*3*block || m.BytesRead != 3*3*block {
		t.Errorf("%+v", m)
	}
	if d, err := mustPrepare(t, a, local, remote).Estimate(t.Context()); err != nil || d <= 0 {
		t.Errorf("estimate %v, %v", d, err)
	}
}

func mustPrepare(t *testing.T, a *side, local, remote *agent.List) *agent.Request {
	t.Helper()
	r, err := a.Prepare(fabric.Write, agent.Side{List: local}, agent.Side{List: remote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Release)
	return r
}

func TestRepeatedPostIsTheSameTransfer(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	p, _ := a.LoadMetadata(b.MetadataBlob())
	local, remote := lists(t, a, p, b, 8)
	r := mustPrepare(t, a, local, remote)
	o := agent.PostOptions{ID: agent.NewID(), Notification: []byte("once")}
	first := transfer(t, r, o)
	if again := transfer(t, r, o); again != first {
		t.Error("one id, two transfers")
	}
	<-b.Notifications()
	select {
	case n := <-b.Notifications():
		t.Errorf("notified again: %+v", n)
	case <-time.After(20 * time.Millisecond):
	}
	if record, err := a.Explain(o.ID); err != nil || record.State != fabric.Done || len(a.Transfers()) != 1 {
		t.Errorf("%+v, %v", record, err)
	}
	if _, err := a.Explain(agent.NewID()); err == nil {
		t.Error("explained what never was")
	}
}

// A reborn peer has the same name and is not the old one: what was prepared for
// the old incarnation says what was expected and what came.
func TestRebornPeer(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	p, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	local, remote := lists(t, a, p, b, 4)
	old := mustPrepare(t, a, local, remote)
	transfer(t, old, agent.PostOptions{})
	reborn := start(t, agent.Options{Name: "b"})
	fresh, err := a.LoadMetadata(reborn.MetadataBlob())
	if err != nil || fresh == p {
		t.Fatalf("%v", err)
	}
	_, err = old.Post(t.Context(), agent.PostOptions{})
	if !errors.Is(err, fabric.ErrStalePeer) || !strings.Contains(err.Error(), b.Incarnation().String()) ||
		!strings.Contains(err.Error(), reborn.Incarnation().String()) {
		t.Errorf("got %v", err)
	}
	_, remote = lists(t, a, fresh, reborn, 4)
	transfer(t, mustPrepare(t, a, local, remote), agent.PostOptions{})
}

func TestFenceRefusesTheOldEpoch(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	p, _ := a.LoadMetadata(b.MetadataBlob())
	local, remote := lists(t, a, p, b, 4)
	r := mustPrepare(t, a, local, remote)
	transfer(t, r, agent.PostOptions{})
	info, err := b.Fence(t.Context(), b.region.ID)
	if err != nil || info.Epoch != b.region.Epoch+1 {
		t.Fatalf("%+v, %v", info, err)
	}
	before := bytes.Clone(b.arena.Bytes(0, b.arena.Size()))
	rand.Read(a.arena.Bytes(0, a.arena.Size()))
	tr, err := r.Post(t.Context(), agent.PostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Await(t.Context()); !errors.Is(err, fabric.ErrStaleEpoch) || !strings.Contains(err.Error(), "epoch 2") {
		t.Errorf("got %v, want what was expected and what came", err)
	}
	if !bytes.Equal(before, b.arena.Bytes(0, b.arena.Size())) {
		t.Error("bytes of a stale epoch were placed")
	}
	if p, err = a.LoadMetadata(b.MetadataBlob()); err != nil {
		t.Fatal(err)
	}
	_, remote = lists(t, a, p, b, 4)
	transfer(t, mustPrepare(t, a, local, remote), agent.PostOptions{})
}

func TestFallback(t *testing.T) {
	both := []agent.Opener{overNothing, overTCP}
	a, b := start(t, agent.Options{Name: "a", Fabrics: both}), start(t, agent.Options{Name: "b", Fabrics: both})
	p, _ := a.LoadMetadata(b.MetadataBlob())
	local, remote := lists(t, a, p, b, 4)
	tr := transfer(t, mustPrepare(t, a, local, remote), agent.PostOptions{})
	text := tr.Explain()
	if tr.Record().Fabric != "tcp" || !strings.Contains(text, "attempt 1 broken: not submitted after") {
		t.Errorf("explains itself as\n%s", text)
	}
}

func TestDirectory(t *testing.T) {
	store := memdir.New(memdir.Options{})
	newDirectory := func() directory.Directory {
		d, err := store.Open(memdir.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return d
	}
	da, db := newDirectory(), newDirectory()
	a, b := start(t, agent.Options{Name: "a", Directory: da}), start(t, agent.Options{Name: "b", Directory: db})
	if err := b.Republish(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := a.Find(t.Context(), "b")
	if err != nil || p.Incarnation != b.Incarnation() || len(p.Regions()) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	local, remote := lists(t, a, p, b, 4)
	transfer(t, mustPrepare(t, a, local, remote), agent.PostOptions{})
	if _, err := a.Find(t.Context(), "c"); !errors.Is(err, directory.ErrNotFound) {
		t.Errorf("found an agent that is not there: %v", err)
	}
	if _, err := agent.Open(t.Context(), agent.Options{Name: "b", Fabrics: []agent.Opener{overTCP}, Directory: da}); err == nil ||
		!strings.Contains(err.Error(), "is held by incarnation") {
		t.Errorf("two agents of one name: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Find(t.Context(), "b"); !errors.Is(err, directory.ErrNotFound) {
		t.Errorf("a clean exit left a record: %v", err)
	}
}

// A name stands in the directory until the lease of a killed agent ends. Who has
// the lock that it had knows that it is dead; no other does.
func TestNameOfAKilledAgent(t *testing.T) {
	store := memdir.New(memdir.Options{})
	d, err := store.Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	killed := start(t, agent.Options{Name: "b", Directory: d, Lock: "this one"})
	for _, lock := range []string{"", "another"} {
		if _, err := agent.Open(t.Context(), agent.Options{Name: "b", Fabrics: []agent.Opener{overTCP}, Directory: d, Lock: lock}); err == nil ||
			!strings.Contains(err.Error(), "is held by incarnation") {
			t.Errorf("with lock %q: %v", lock, err)
		}
	}
	next := start(t, agent.Options{Name: "b", Directory: d, Lock: "this one"})
	if err := killed.Close(t.Context()); err != nil { // its lease ends
		t.Fatal(err)
	}
	a := start(t, agent.Options{Name: "a", Directory: d})
	if p, err := a.Find(t.Context(), "b"); err != nil || p.Incarnation != next.Incarnation() {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestMetadata(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	connectionOnly, err := b.PartialMetadataBlob()
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.LoadMetadata(connectionOnly)
	if err != nil || len(p.Regions()) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := p.Remote(b.descriptors(1)); !errors.Is(err, fabric.ErrUnknownRegion) {
		t.Errorf("a region that b did not tell of: %v", err)
	}
	one, err := b.PartialMetadataBlob(b.region.ID)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.LoadMetadata(one); err != nil || again != p || len(p.Regions()) != 1 {
		t.Errorf("%v", err)
	}
	if _, err := b.PartialMetadataBlob(99); err == nil {
		t.Error("told of a region that is not there")
	}
	for i := range one {
		bent := bytes.Clone(one)
		bent[i] ^= 0x40
		if _, err := a.LoadMetadata(bent); !errors.Is(err, agent.ErrMetadata) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := a.LoadMetadata(one[:i]); !errors.Is(err, agent.ErrMetadata) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	p, _ := a.LoadMetadata(b.MetadataBlob())
	local, remote := lists(t, a, p, b, 4)
	for name, c := range map[string]struct {
		local, remote agent.Side
		want          error
	}{
		"different lengths": {agent.Side{List: local, Indices: []int32{0}}, agent.Side{List: remote}, fabric.ErrLengths},
		"index too large":   {agent.Side{List: local, Indices: []int32{4}}, agent.Side{List: remote, Indices: []int32{0}}, mem.ErrBounds},
		"negative index":    {agent.Side{List: local, Indices: []int32{0}}, agent.Side{List: remote, Indices: []int32{-1}}, mem.ErrBounds},
		"sides swapped":     {agent.Side{List: remote}, agent.Side{List: local}, nil},
		"no list":           {agent.Side{}, agent.Side{List: remote}, nil},
	} {
		if _, err := a.Prepare(fabric.Write, c.local, c.remote); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Local([]agent.Descriptor{{Address: a.region.Address + a.region.Length - 1, Length: 2}}); !errors.Is(err, fabric.ErrUnknownRegion) {
		t.Errorf("a descriptor over the edge: %v", err)
	}
	if _, err := a.Local([]agent.Descriptor{{Address: a.region.Address, Length: 2, Device: 9}}); !errors.Is(err, fabric.ErrUnknownRegion) {
		t.Errorf("a descriptor on another device: %v", err)
	}
	if _, err := a.Register(a.arena.Section, ""); err == nil {
		t.Error("registered the same memory twice")
	}
	if err := a.Deregister(t.Context(), 99); !errors.Is(err, fabric.ErrUnknownRegion) {
		t.Errorf("%v", err)
	}
	if _, err := agent.Open(t.Context(), agent.Options{Name: "x"}); err == nil {
		t.Error("an agent without a fabric")
	}
	if _, err := agent.Open(t.Context(), agent.Options{Fabrics: []agent.Opener{overTCP}}); err == nil {
		t.Error("an agent without a name")
	}
	if (kv.ID{}) == agent.NewID() {
		t.Error("ids are random")
	}
}
