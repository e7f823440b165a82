package chaos_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/prove/chaos"
)

// Two agents that move bytes for as long as they like do not grow. `make soak`
// says for how many minutes.
func TestMemoryStaysFlat(t *testing.T) {
	t.Parallel()
	// In seconds, on a busy machine, the ledgers are not full when they are taken
	// for full; buffers that leak are seen all the same.
	length, slack := 4*time.Second, uint64(64<<20)
	if minutes, err := strconv.ParseFloat(os.Getenv("MERIDIAN_SOAK_MINUTES"), 64); err == nil {
		length, slack = time.Duration(minutes*float64(time.Minute)), 16<<20
	}
	s := setStage(t)
	step := length / 8
	memory := func() [2]uint64 { return [2]uint64{s.poster.Status("RssAnon"), s.owner.Status("RssAnon")} }
	var settled [2]uint64
	for i := range 8 {
		for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
			for _, size := range []uint64{512, 64 << 10, 1 << 20} {
				rate := s.poster.Run(chaos.Post{Peer: "owner", Op: op, Length: size, Deadline: soon}, step/6)
				if rate.Err != nil {
					t.Fatal(rate.Err)
				}
			}
		}
		if i == 1 { // ledgers and memories of the last ends are full by now, or nearly
			settled = memory()
		}
	}
	for i, now := range memory() {
		t.Logf("%s: from %d to %d KiB", []string{"poster", "owner"}[i], settled[i]>>10, now>>10)
		if now > settled[i]+settled[i]/4+slack {
			t.Errorf("%s grew from %d to %d KiB", []string{"poster", "owner"}[i], settled[i]>>10, now>>10)
		}
	}
}
