package replay

import (
	"math"
	"sort"
	"testing"
	"time"

	"meridian/decide/policy"
	"meridian/prove/replay/workload"
)

// knee is how many tokens more than these a step may compute and take a tenth
// longer, beside attention; 0 if they cost a quarter of what tokens cost, or more.
// The cost table knows it, and an engine has to learn it.
func (c *stepCost) knee(tokens int32) int32 {
	bound := c.dense[tokens] + (c.step+c.dense[tokens])/10
	more := sort.Search(len(c.dense)-int(tokens), func(n int) bool { return c.dense[int(tokens)+n] > bound }) - 1
	last := len(c.dense) - 1
	if price := (c.dense[last] - c.dense[0]) / ps(last); 4*(c.dense[int(tokens)+more]-c.dense[tokens]) > ps(more)*price {
		return 0
	}
	return int32(more)
}

// What policies are told of free tokens is learnt from the steps, by the code of
// the governor, and comes close to the knee of the roofline: within minutes, and
// still so when few requests are left.
func TestFreeTokensAreLearnt(t *testing.T) {
	for _, profile := range Profiles() {
		t.Run(profile.Name, func(t *testing.T) {
			policy, err := policy.New("meridian", policy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			source, _, err := workload.Open("servegen-r1", workload.Options{Seed: 5, Scale: 0.05, Duration: 15 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			world, err := newCell(Config{Profile: profile}, source, policy)
			if err != nil {
				t.Fatal(err)
			}
			if err := world.pull(); err != nil {
				t.Fatal(err)
			}
			for more := true; more; {
				if more, err = world.turn(); err != nil {
					t.Fatal(err)
				}
			}
			for _, running := range []int32{1, 16, 40, 64} {
				got, want := world.engines[0].calibration.Costs(running).FreeTokens, world.cost.knee(running)
				if math.Abs(float64(got-want)) > 0.08*float64(running+want) {
					t.Errorf("beside %d: %d tokens are free, and the knee is %d away", running, got, want)
				}
			}
		})
	}
}
