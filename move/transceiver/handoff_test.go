package transceiver_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

var model = kv.Uniform(3, kv.Layer{KVHeads: 4, HeadDim: 8}, kv.BFloat16)

// TP4 → TP2, blocks of 16 → 64, other layouts, over every fabric and both ways:
// the destination holds what a direct shard would have put there.
func TestHandOver(t *testing.T) {
	for _, fabricName := range []string{"inproc", "host", "tcp"} {
		for _, push := range []bool{false, true} {
			for _, extents := range []int{1, 5} {
				t.Run(fmt.Sprintf("%s/push=%t/extents=%d", fabricName, push, extents), func(t *testing.T) {
					c := newCell(t, fabricName)
					p, d := c.start("p"), c.start("d")
					src := c.engine("prefill", model, shape{tp: 4, pp: 1, blockTokens: 16, blocks: 40, layout: "LBHNC", extents: extents}, p)
					dst := c.engine("decode", model, shape{tp: 2, pp: 2, blockTokens: 64, blocks: 12, layout: "LBNHC", extents: extents}, d)
					handOver(t, src, dst, way{push: push, tokens: 300, present: 70})
				})
			}
		}
	}
}

// way is how a hand-off goes.
type way struct {
	push            bool
	tokens, present int
	stepwise        bool // layers come one by one
	chunk           int  // …and so many tokens at a time; 0: all
	decodeFirst     bool // decode asks before prefill offers
}

// handOver does one hand-off and looks at the bytes.
func handOver(t *testing.T, src, dst *engine, w way) {
	t.Helper()
	content := prompt(w.tokens)
	from, to := src.blocksFor(w.tokens, 2), dst.blocksFor(w.tokens, 1)
	layers := len(src.Side.Geometry.Layers)
	for layer := range layers {
		dst.fill(layer, to, kv.TokenRange{End: w.present})
	}
	offer := transceiver.Offer{Transfer: agent.NewID(), Engine: src.ID, Content: content, Holding: holding(from), Layers: layers}
	if w.stepwise {
		offer.Layers = 0
	}
	for layer := range offer.Layers {
		src.fill(layer, from, kv.TokenRange{End: w.tokens})
	}
	var out *transceiver.OfferHandle
	var in *transceiver.AcceptHandle
	offering := func() {
		var err error
		if out, err = src.home.Offer(offer); err != nil {
			t.Fatal(err)
		}
	}
	accepting := func(ticket []byte) {
		var err error
		if in, err = dst.home.accept(soon(t), shown{
			Ticket: ticket, Engine: dst.ID, Content: content, Holding: holding(to), Present: w.present, Push: w.push,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if w.decodeFirst {
		heard := src.home.Metrics().MessagesHeard
		accepting(src.home.Issue(offer))
		until.True(t, "the ask is heard", func() bool { return src.home.Metrics().MessagesHeard > heard })
		offering()
	} else {
		offering()
		accepting(out.Ticket)
	}
	chunk := cmp.Or(w.chunk, w.tokens)
	for first := 0; w.stepwise && first < w.tokens; first += chunk {
		end := min(first+chunk, w.tokens)
		for layer := range layers {
			src.fill(layer, from, kv.TokenRange{Start: first, End: end})
			out.Progress(layer+1, end)
		}
	}
	if err := in.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if wrong := dst.wrong(to, kv.TokenRange{End: w.tokens}); wrong != 0 {
		t.Fatalf("%d bytes are wrong", wrong)
	}
	if err := out.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	records, err := dst.home.Explain(in.Transfer)
	if err != nil {
		t.Fatal(err)
	}
	if r := (handoff.Record{OfStore: true, Unused: true, Problem: "handoff: cancelled"}); !strings.Contains(r.String(), "outcome   given back before it was taken; nothing went wrong") {
		t.Error(r.String())
	}
	if text := records[0].String(); !strings.Contains(text, "outcome   done") || records[0].Bytes == 0 {
		t.Errorf("the record says:\n%s", text)
	}
}

// Layers that move as they are computed, and a decode engine that comes first.
func TestLayerByLayer(t *testing.T) {
	for _, w := range []way{
		{stepwise: true},
		{stepwise: true, push: true},
		{stepwise: true, chunk: 37},
		{stepwise: true, chunk: 37, push: true, present: 40},
		{decodeFirst: true},
		{decodeFirst: true, push: true, stepwise: true},
	} {
		t.Run(fmt.Sprintf("%+v", w), func(t *testing.T) {
			c := newCell(t, "inproc")
			p, d := c.start("p"), c.start("d")
			src := c.engine("prefill", model, shape{tp: 2, pp: 3, blockTokens: 16, blocks: 40, layout: "BLHNC"}, p)
			dst := c.engine("decode", model, shape{tp: 3, pp: 1, blockTokens: 5, blocks: 70, layout: "SGLANG"}, d)
			w.tokens = 299
			handOver(t, src, dst, w)
		})
	}
}

// Ranks on several agents: homes tell followers what to open and what to move.
func TestFollowers(t *testing.T) {
	for _, fabricName := range []string{"inproc", "host", "tcp"} {
		for _, push := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/push=%t", fabricName, push), func(t *testing.T) {
				c := newCell(t, fabricName)
				passed := make(chan handoff.NotifyRanks, 10)
				p0, p1, p2, d0 := c.start("p0"), c.start("p1"), c.start("p2"), c.start("d0")
				d1 := c.start("d1", func(o *transceiver.Options) { o.NotifyRanks = func(e handoff.NotifyRanks) { passed <- e } })
				src := c.engine("prefill", model, shape{tp: 6, pp: 1, blockTokens: 16, blocks: 40, layout: "LBHNC"}, p0, p1, p2)
				dst := c.engine("decode", model, shape{tp: 2, pp: 2, blockTokens: 8, blocks: 40, layout: "TRTLLM_HND"}, d0, d1)
				handOver(t, src, dst, way{push: push, tokens: 200, stepwise: true})
				handOver(t, src, dst, way{push: push, tokens: 200, stepwise: true, chunk: 60})
				select { // ranks that live elsewhere hear of it, too
				case e := <-passed:
					if e.Engine != "decode" || e.As != handoff.Destination || !e.Problem.None() {
						t.Errorf("%+v", e)
					}
				case <-soon(t).Done():
					t.Error("its ranks were told nothing")
				}
				for _, n := range []*node{p1, p2, d1} {
					if m := n.Metrics(); m.MessagesHeard == 0 {
						t.Errorf("%s heard nothing", n.member.Name)
					}
				}
			})
		}
	}
}

// Both engines on one agent, which needs no grant for what is its own.
func TestBothSidesOnOneAgent(t *testing.T) {
	for _, fabricName := range []string{"inproc", "host", "tcp"} {
		for _, push := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/push=%t", fabricName, push), func(t *testing.T) {
				c := newCell(t, fabricName)
				n := c.start("n")
				src := c.engine("prefill", model, shape{tp: 4, pp: 1, blockTokens: 16, blocks: 40, layout: "LBHNC"}, n)
				dst := c.engine("decode", model, shape{tp: 1, pp: 1, blockTokens: 16, blocks: 40, layout: "LBHNC"}, n)
				handOver(t, src, dst, way{push: push, tokens: 100})
			})
		}
	}
}

// Many at once do not get in one another's way.
func TestManyAtOnce(t *testing.T) {
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	const requests, tokens = 32, 64
	src := c.engine("prefill", model, shape{tp: 4, pp: 1, blockTokens: 16, blocks: requests * 4, layout: "LBHNC"}, p)
	dst := c.engine("decode", model, shape{tp: 2, pp: 1, blockTokens: 16, blocks: requests * 4, layout: "LBHNC"}, d)
	content := prompt(tokens)
	var running []*transceiver.AcceptHandle
	var standing []*transceiver.OfferHandle
	blocks := func(i int) []uint32 {
		return []uint32{uint32(4 * i), uint32(4*i + 1), uint32(4*i + 2), uint32(4*i + 3)}
	}
	for i := range requests {
		for layer := range model.Layers {
			src.fill(layer, blocks(i), kv.TokenRange{End: tokens})
		}
		out, err := p.Offer(transceiver.Offer{Transfer: agent.NewID(), Engine: src.ID, Content: content, Holding: holding(blocks(i)), Layers: len(model.Layers)})
		if err != nil {
			t.Fatal(err)
		}
		in, err := d.accept(soon(t), shown{Ticket: out.Ticket, Engine: dst.ID, Content: content, Holding: holding(blocks(requests - 1 - i)), Push: i%3 == 0})
		if err != nil {
			t.Fatal(err)
		}
		running, standing = append(running, in), append(standing, out)
	}
	for i := range running {
		if err := running[i].Wait(soon(t)); err != nil {
			t.Error(err)
		}
		if err := standing[i].Wait(soon(t)); err != nil {
			t.Error(err)
		}
	}
	for i := range running {
		if wrong := dst.wrong(blocks(i), kv.TokenRange{End: tokens}); wrong != 0 {
			t.Errorf("request %d: %d bytes are wrong", i, wrong)
		}
	}
}
