package governor

import (
	"testing"

	"meridian/block"
)

// One block that nobody copied does not keep the others of its batch under way.
func TestAWrongBlockAmongCopies(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	thinkThen(t, g, endID, 92, 7)
	g.Step(&Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{60, 1, 2}, Took: 2000, Whole: true}}})
	if c := g.Counters(); c.Contradictions != 1 || g.underWay != 0 || g.snapshot.Requests[0].Copied != 2 {
		t.Errorf("%+v, %d under way, %+v", c, g.underWay, g.snapshot.Requests[0])
	}
}
