package directorytest

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"meridian/member/directory"
)

var raceChecks = []check{
	{"one creator wins", oneCreatorWins},
	{"one swapper wins each round", oneSwapperWins},
	{"no increment is lost", noIncrementIsLost},
}

const (
	racers = 8 // clients, each on connections of its own
	lanes  = 4 // goroutines of each
)

// race runs one goroutine per lane of every client, all started together.
func race(clients []Client, run func(d directory.Directory, name string)) {
	var lines sync.WaitGroup
	start := make(chan struct{})
	for i, c := range clients {
		for lane := range lanes {
			lines.Go(func() {
				<-start
				run(c, strconv.Itoa(i)+"-"+strconv.Itoa(lane))
			})
		}
	}
	close(start)
	lines.Wait()
}

func crew(t *testing.T, w *World) []Client {
	clients := make([]Client, racers)
	for i := range clients {
		clients[i] = w.client(t)
	}
	return clients
}

func oneCreatorWins(t *testing.T, w *World) {
	clients := crew(t, w)
	for round := range 5 {
		key := home(t) + strconv.Itoa(round)
		var winner atomic.Value
		var winners atomic.Int32
		race(clients, func(d directory.Directory, name string) {
			_, err := d.Create(t.Context(), directory.Entry{Key: key, Value: value("%s", name)})
			switch {
			case err == nil:
				winners.Add(1)
				winner.Store(name)
			case !errors.Is(err, directory.ErrExists):
				t.Error(err)
			}
		})
		got, err := clients[0].Get(t.Context(), key)
		if err != nil || winners.Load() != 1 || string(got.Value) != winner.Load() {
			t.Fatalf("round %d: %d won, the last %v, and %q stands: %v", round, winners.Load(), winner.Load(), got.Value, err)
		}
	}
}

func oneSwapperWins(t *testing.T, w *World) {
	clients, key := crew(t, w), home(t)+"a"
	at := create(t, clients[0], directory.Entry{Key: key}).Revision
	for round := range 10 {
		var won atomic.Int64
		var winners atomic.Int32
		race(clients, func(d directory.Directory, name string) {
			r, err := d.Swap(t.Context(), directory.Entry{Key: key, Value: value("%s", name)}, at)
			switch {
			case err == nil:
				winners.Add(1)
				won.Store(int64(r.Revision))
			case !errors.Is(err, directory.ErrChanged):
				t.Error(err)
			}
		})
		got, err := clients[0].Get(t.Context(), key)
		if err != nil || winners.Load() != 1 || int64(got.Revision) != won.Load() {
			t.Fatalf("round %d: %d won, the last at %d, and %d stands: %v", round, winners.Load(), won.Load(), got.Revision, err)
		}
		at = got.Revision
	}
}

func noIncrementIsLost(t *testing.T, w *World) {
	clients, key := crew(t, w), home(t)+"a"
	create(t, clients[0], directory.Entry{Key: key, Value: value("0")})
	race(clients, func(d directory.Directory, _ string) {
		r, err := d.Get(t.Context(), key)
		for err == nil {
			count, _ := strconv.Atoi(string(r.Value))
			r, err = d.Swap(t.Context(), directory.Entry{Key: key, Value: value("%d", count+1)}, r.Revision)
			if err == nil {
				return
			}
			if errors.Is(err, directory.ErrChanged) { // r is what stands there now
				err = nil
			}
		}
		t.Error(err)
	})
	got, err := clients[0].Get(t.Context(), key)
	if want := strconv.Itoa(racers * lanes); err != nil || string(got.Value) != want {
		t.Errorf("%d increments gave %q, %v", racers*lanes, got.Value, err)
	}
}
