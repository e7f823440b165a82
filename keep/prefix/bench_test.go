package prefix_test

import (
	"fmt"
	"testing"

	"meridian/keep/prefix"
)

// A Find of so many tokens: a miss, and what is found and given back, at the owner of the
// engine's own agent and at another's.
func BenchmarkFind(b *testing.B) {
	c := newCell(b, "host")
	keeper, away := c.start("a", nodeOptions{keeps: 64 << 20}), c.start("b", nodeOptions{})
	writer := c.engine("writer", shape{tp: 1, blockTokens: 16, blocks: 256, layout: "LFBNHD"}, keeper)
	here, there := c.engine("here", reader, keeper), c.engine("there", reader, away)
	p := prompt(960, 1)
	writer.keep(b, p)
	keeper.settled(b)
	for _, engine := range []*engine{here, there} {
		for _, tokens := range []int{128, 960} {
			b.Run(fmt.Sprintf("%s/miss/%d", engine.ID, tokens), func(b *testing.B) {
				q := prompt(tokens, 5)
				for b.Loop() {
					if found, err := engine.node.Find(b.Context(), prefix.Find{Engine: engine.ID, Content: q}); err != nil || found.Tokens != 0 {
						b.Fatal(found, err)
					}
				}
			})
			b.Run(fmt.Sprintf("%s/hit/%d", engine.ID, tokens), func(b *testing.B) {
				q := p
				q.Tokens = p.Tokens[:tokens]
				for b.Loop() {
					found, err := engine.node.Find(b.Context(), prefix.Find{Engine: engine.ID, Content: q})
					if err != nil || found.Tokens != tokens {
						b.Fatal(found, err)
					}
					for _, s := range found.Segments {
						if err := engine.node.transceiver.ReturnTicket(s.Ticket); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
