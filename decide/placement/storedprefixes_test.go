package placement

import (
	"testing"

	"pgregory.net/rapid"
)

func hashes(n int, from uint64) Prefix {
	p := Prefix{TokensPerHash: 16}
	for i := range uint64(n) {
		p.Hashes = append(p.Hashes, from+i)
	}
	return p
}

func TestKeptIsBelieved(t *testing.T) {
	const begin, second, minute, hour = 1000, 1, 60, 3600
	after := func(d int64) int64 { return begin + d }
	k := NewKept(1000, hour, minute)
	p := hashes(8, 1)
	held := func(p Prefix, at int64, want int) {
		t.Helper()
		if got := k.Held(p, after(at)); got != want {
			t.Fatalf("%d hashes are believed after %d s, want %d", got, at, want)
		}
	}
	held(p, 0, 0)
	k.Note(p, begin)
	held(p, 0, 8)
	held(hashes(12, 1), 0, 8)
	held(hashes(8, 100), 0, 0)

	// Less was found: the rest is in doubt, also when it is given to the cache again.
	k.Missed(p, 5, begin)
	held(p, 0, 5)
	held(hashes(5, 1), 0, 5)
	k.Note(p, after(second))
	held(p, 59*second, 5)
	held(p, 61*second, 8)

	// What was fetched is there.
	k.Missed(p, 0, after(2*minute))
	held(p, 2*minute, 0)
	k.Found(p, 3, after(2*minute))
	held(p, 2*minute, 8)
	k.Found(p, 99, after(2*minute))
	k.Missed(p, 8, after(2*minute))
	k.Missed(p, 1<<40, after(2*minute))
	held(p, 2*minute, 8)
	k.Missed(p, -7, after(2*minute))
	held(p, 2*minute, 0)

	held(hashes(8, 1), 62*minute, 8)
	held(p, 63*minute, 0) // unused for an hour
	k.Note(p, after(63*minute))
	k.Forget()
	held(p, 63*minute, 0)
	if k.Len() != 0 {
		t.Errorf("%d hashes are remembered of nothing", k.Len())
	}
}

// Whatever engines answer, a prompt that was missed is not believed beyond that point
// while the doubt lasts, and memory is bounded.
func TestKeptIsCutBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := int64(0)
		k := NewKept(rapid.IntRange(1, 40).Draw(t, "limit"), 3600, 60)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, 60).Draw(t, "seconds")
			p := hashes(rapid.IntRange(0, 20).Draw(t, "length"), 100*rapid.Uint64Range(0, 3).Draw(t, "prompt"))
			n := rapid.IntRange(-2, 22).Draw(t, "n")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				k.Note(p, now)
			case 1:
				k.Found(p, n, now)
			case 2:
				k.Missed(p, n, now)
				k.Note(p, now)
				if got := k.Held(p, now); got > max(n, 0) {
					t.Fatalf("%d hashes were found, and %d are believed", n, got)
				}
			}
		}
		if k.Len() > k.known.limit || len(k.missed.entries) > k.missed.limit {
			t.Fatalf("%d and %d hashes are remembered", k.Len(), len(k.missed.entries))
		}
	})
}
