package transceiver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

// pair is two engines of one rank each, and a request that can be offered.
type pair struct {
	*cell
	p, d     *node
	src, dst *engine
	offer    transceiver.Offer
	accept   shown
	blocks   []uint32
}

const pairTokens = 100

func newPair(t *testing.T, pace handoff.Timing) *pair {
	x := &pair{cell: newCell(t, "inproc")}
	x.pace = pace
	x.p, x.d = x.start("p"), x.start("d")
	s := shape{tp: 1, pp: 1, blockTokens: 16, blocks: 20, layout: "LBHNC"}
	x.src, x.dst = x.engine("prefill", model, s, x.p), x.engine("decode", model, s, x.d)
	x.blocks = x.src.blocksFor(pairTokens, 1)
	for layer := range model.Layers {
		x.src.fill(layer, x.blocks, kv.TokenRange{End: pairTokens})
	}
	x.offer = transceiver.Offer{Transfer: agent.NewID(), Engine: "prefill", Content: prompt(pairTokens), Holding: holding(x.blocks), Layers: len(model.Layers)}
	x.accept = shown{Engine: "decode", Content: prompt(pairTokens), Holding: holding(x.blocks)}
	return x
}

func (x *pair) offered(t *testing.T) *transceiver.OfferHandle {
	t.Helper()
	out, err := x.p.Offer(x.offer)
	if err != nil {
		t.Fatal(err)
	}
	x.accept.Ticket = out.Ticket
	return out
}

func (x *pair) accepted(t *testing.T, ctx context.Context) *transceiver.AcceptHandle {
	t.Helper()
	in, err := x.d.accept(ctx, x.accept)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Engines that do not fit are told field by field.
func TestIncompatibleEngines(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	out := x.offered(t)
	other := kv.Uniform(3, kv.Layer{KVHeads: 4, HeadDim: 16}, kv.Float16)
	x.engine("other", other, shape{tp: 1, pp: 1, blockTokens: 16, blocks: 20, layout: "LBHNC"}, x.d)
	x.accept.Engine = "other"
	err := x.accepted(t, soon(t)).Wait(soon(t))
	var unfit *reshard.Incompatible
	if !errors.As(err, &unfit) || len(unfit.Differences) != 2 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"dtype: source bf16, destination fp16", "head_dim of layers 0–2: source 8, destination 16"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	x.accept.Engine = "decode" // another may still come
	if err := x.accepted(t, soon(t)).Wait(soon(t)); err != nil {
		t.Error(err)
	}
	if err := out.Wait(soon(t)); err != nil {
		t.Error(err)
	}
}

// A decode engine that waits for an offer waits no longer than its deadline.
func TestNothingIsOffered(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	x.accept.Ticket = x.p.Issue(x.offer)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	in := x.accepted(t, ctx)
	if err := in.Wait(soon(t)); !errors.Is(err, handoff.ErrDeadline) {
		t.Fatal(err)
	}
}

// Either side may change its mind while layers are still being computed. The
// blocks are free when it says so.
func TestCancelAndWithdraw(t *testing.T) {
	for _, push := range []bool{false, true} {
		for name, c := range map[string]struct {
			regret      func(*transceiver.AcceptHandle, *transceiver.OfferHandle)
			here, there error
		}{
			"cancel": {
				func(in *transceiver.AcceptHandle, _ *transceiver.OfferHandle) {
					if err := in.Cancel(context.Background()); err != nil {
						panic(err)
					}
				}, handoff.ErrCancelled, handoff.ErrCancelled,
			},
			"withdraw": {func(_ *transceiver.AcceptHandle, out *transceiver.OfferHandle) { out.Withdraw() }, handoff.ErrWithdrawn, handoff.ErrWithdrawn},
		} {
			for _, moving := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					x := newPair(t, handoff.Timing{})
					x.offer.Layers, x.accept.Push = 1, push
					out := x.offered(t)
					in := x.accepted(t, soon(t))
					if moving { // else it comes while they still greet each other
						until.True(t, "something has moved", func() bool { return x.p.agent.Metrics().Done+x.d.agent.Metrics().Done > 0 })
					}
					c.regret(in, out)
					if err := in.Wait(soon(t)); !errors.Is(err, c.here) {
						t.Errorf("the decode side: %v", err)
					}
					if err := out.Wait(soon(t)); !errors.Is(err, c.there) {
						t.Errorf("the prefill side: %v", err)
					}
					for _, n := range []*node{x.p, x.d} {
						if m := n.agent.Metrics(); m.Grants != 0 {
							t.Errorf("%s has %d grants left", n.member.Name, m.Grants)
						}
					}
				})
			}
		}
	}
}

// Cancels that come before there is anything to cancel are remembered.
func TestCancelComesFirst(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	x.accept.Ticket = x.p.Issue(x.offer)
	x.d.Cancel(x.offer.Transfer)
	if _, err := x.d.accept(soon(t), x.accept); !errors.Is(err, handoff.ErrCancelled) {
		t.Errorf("accepted after it was cancelled: %v", err)
	}
	x.p.Withdraw(x.offer.Transfer)
	if _, err := x.p.Offer(x.offer); !errors.Is(err, handoff.ErrWithdrawn) {
		t.Errorf("offered after it was withdrawn: %v", err)
	}
}

// A ticket that is given back frees the blocks without a hand-off.
func TestReturnTicket(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	out := x.offered(t)
	if err := x.d.ReturnTicket(out.Ticket); err != nil {
		t.Fatal(err)
	}
	if err := out.Wait(soon(t)); !errors.Is(err, handoff.ErrCancelled) {
		t.Error(err)
	}
}

// A hand-off that fails leaves the offer for another try, unless its ticket is
// given back.
func TestReturnTicketAfterFailure(t *testing.T) {
	for _, soonest := range []bool{true, false} {
		x := newPair(t, handoff.Timing{})
		x.offer.Layers = 1 // the rest does not come
		out := x.offered(t)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		in := x.accepted(t, ctx)
		if err := in.Wait(soon(t)); !errors.Is(err, handoff.ErrDeadline) {
			t.Fatal(err)
		}
		if !soonest { // the source has been told of the failure
			until.True(t, "the destination knows nothing of it any more", func() bool { return x.d.Metrics().Accepts == 0 })
		}
		if err := x.d.ReturnTicket(out.Ticket); err != nil {
			t.Fatal(err)
		}
		if err := out.Wait(soon(t)); !errors.Is(err, handoff.ErrCancelled) {
			t.Error(err)
		}
		if _, err := x.d.accept(soon(t), x.accept); !errors.Is(err, handoff.ErrCancelled) {
			t.Errorf("accepted after it was given back: %v", err)
		}
	}
}

// The prefill agent dies: the decode side hears of it, or its deadline passes.
func TestPrefillDies(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	x.offer.Layers = 1
	x.offered(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	in := x.accepted(t, ctx)
	until.True(t, "something has moved", func() bool { return x.d.agent.Metrics().Done > 0 })
	x.replace(t, x.p)
	if err := in.Wait(soon(t)); !errors.Is(err, handoff.ErrGone) && !errors.Is(err, handoff.ErrWithdrawn) && !errors.Is(err, handoff.ErrDeadline) {
		t.Error(err)
	}
}

// replace ends a node and starts another under its name.
func (c *cell) replace(t *testing.T, n *node) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.agent.Close(ctx); err != nil { // before its transceiver can say a word
		t.Fatal(err)
	}
	return c.start(n.member.Name)
}

// The decode agent dies: the lease ends, and the offer is free for another.
func TestDecodeDies(t *testing.T) {
	told := make(chan handoff.Event, 100)
	x := &pair{cell: newCell(t, "inproc")}
	x.pace = handoff.Timing{Lease: 200 * handoff.Millisecond}
	x.p = x.start("p", func(o *transceiver.Options) { o.Events = func(e handoff.Event) { told <- e } })
	x.d = x.start("d")
	s := shape{tp: 1, pp: 1, blockTokens: 16, blocks: 20, layout: "LBHNC"}
	x.src, x.dst = x.engine("prefill", model, s, x.p), x.engine("decode", model, s, x.d)
	blocks := x.src.blocksFor(pairTokens, 1)
	for layer := range model.Layers {
		x.src.fill(layer, blocks, kv.TokenRange{End: pairTokens})
	}
	x.offer = transceiver.Offer{Transfer: agent.NewID(), Engine: "prefill", Content: prompt(pairTokens), Holding: holding(blocks), Layers: 1}
	x.accept = shown{Engine: "decode", Content: prompt(pairTokens), Holding: holding(blocks)}
	out := x.offered(t)
	x.accepted(t, soon(t))
	until.True(t, "something has moved", func() bool { return x.d.agent.Metrics().Done > 0 })
	d2 := x.replace(t, x.d)
	select {
	case e := <-told:
		if e.Kind != handoff.Dropped {
			t.Fatalf("%+v", e)
		}
	case <-soon(t).Done():
		t.Fatal("the lease did not end")
	}
	dst2 := x.engine("decode2", model, s, d2)
	x.accept.Engine = "decode2"
	in, err := d2.accept(soon(t), x.accept)
	if err != nil {
		t.Fatal(err)
	}
	out.Progress(len(model.Layers), 0)
	if err := in.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if wrong := dst2.wrong(blocks, kv.TokenRange{End: pairTokens}); wrong != 0 {
		t.Errorf("%d bytes are wrong", wrong)
	}
	if err := out.Wait(soon(t)); err != nil {
		t.Error(err)
	}
}

// A prefill engine keeps some of its blocks for itself.
func TestHeldBlocksAreCapped(t *testing.T) {
	c := newCell(t, "inproc")
	p := c.start("p", func(o *transceiver.Options) { o.MaxHeldFraction = 0.5 })
	c.engine("prefill", model, shape{tp: 1, pp: 1, blockTokens: 16, blocks: 20, layout: "LBHNC"}, p)
	offer := func(first uint32) error {
		blocks := []uint32{first, first + 1, first + 2, first + 3, first + 4, first + 5}
		_, err := p.Offer(transceiver.Offer{Transfer: agent.NewID(), Engine: "prefill", Content: prompt(90), Holding: holding(blocks), Layers: 3})
		return err
	}
	if err := offer(0); err != nil {
		t.Fatal(err)
	}
	if err := offer(6); !errors.Is(err, handoff.ErrDeclined) {
		t.Errorf("12 of 20 blocks: %v", err)
	}
}

// An engine that leaves takes its offers and its accepts along; nothing touches
// its memory after that. What it was taking stays for another.
func TestLeave(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	x.offer.Layers = 1
	out := x.offered(t)
	in := x.accepted(t, soon(t))
	if err := x.d.Leave(soon(t), "decode"); err != nil {
		t.Fatal(err)
	}
	if err := in.Wait(soon(t)); !errors.Is(err, handoff.ErrGone) {
		t.Error(err)
	}
	select {
	case <-out.Freed():
		t.Errorf("the offer ended with the decode engine that was taking it: %v", out.Wait(soon(t)))
	case <-time.After(50 * time.Millisecond):
	}
	if err := x.p.Leave(soon(t), "prefill"); err != nil {
		t.Fatal(err)
	}
	if err := out.Wait(soon(t)); !errors.Is(err, handoff.ErrWithdrawn) {
		t.Error(err)
	}
	if _, err := x.p.Offer(x.offer); err == nil {
		t.Error("an engine that left offers something")
	}
}

// What is not of hand-offs is for others.
func TestListeningLeavesTheRest(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	peer, err := x.p.agent.LoadMetadata(x.d.agent.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Notify(soon(t), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := peer.NotifyUnordered(soon(t), []byte("MRDH and then nothing")); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-x.d.agent.Notifications():
		if string(n.Payload) != "hello" || n.From != "p" {
			t.Errorf("%+v", n)
		}
	case <-soon(t).Done():
		t.Error("it did not arrive")
	}
	until.True(t, "a malformed message is counted", func() bool { return x.d.Metrics().MessagesMalformed == 1 })
}

// A hand-off that takes longer than the lease keeps it, by signs of life.
func TestBeatsKeepTheLease(t *testing.T) {
	x := newPair(t, handoff.Timing{Lease: 5 * handoff.Second})
	x.offer.Layers = 1
	out := x.offered(t)
	in := x.accepted(t, soon(t))
	select {
	case <-in.Done():
		t.Fatalf("it ended before its time: %v", in.Wait(soon(t)))
	case <-time.After(6 * time.Second):
	}
	out.Progress(len(model.Layers), 0)
	if err := in.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := out.Wait(soon(t)); err != nil {
		t.Error(err)
	}
	if m := x.p.Metrics(); m.Offers != 0 || m.Freed != 1 || m.MessagesHeard < 5 {
		t.Errorf("%+v", m)
	}
}

// An engine's events come one at a time and in order.
func TestEventsComeInOrder(t *testing.T) {
	c := newCell(t, "inproc")
	var told []handoff.EventKind
	p := c.start("p")
	d := c.start("d", func(o *transceiver.Options) {
		o.Events = func(e handoff.Event) { told = append(told, e.Kind) }
	})
	s := shape{tp: 2, pp: 1, blockTokens: 16, blocks: 20, layout: "LBHNC"}
	src, dst := c.engine("prefill", model, s, p), c.engine("decode", model, s, d)
	for range 20 {
		out, err := p.Offer(transceiver.Offer{
			Transfer: agent.NewID(), Engine: src.ID, Content: prompt(pairTokens), Holding: holding(src.blocksFor(pairTokens, 1)), Layers: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		in, err := d.accept(soon(t), shown{Ticket: out.Ticket, Engine: dst.ID, Content: prompt(pairTokens), Holding: holding(dst.blocksFor(pairTokens, 1))})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(in.Cancel(soon(t)), d.Leave(soon(t), "stranger")); err != nil {
			t.Fatal(err)
		}
		<-out.Freed()
	}
	if err := d.Close(soon(t)); err != nil { // after which no peer is told anything
		t.Fatal(err)
	}
	if len(told) != 40 {
		t.Fatalf("%v", told)
	}
	for i, kind := range told {
		if kind != []handoff.EventKind{handoff.Failed, handoff.Freed}[i%2] {
			t.Fatalf("event %d is %v: %v", i, kind, told)
		}
	}
}
