package roster

import (
	"testing"
	"time"
	"unsafe"

	"meridian/decide/placement"
	"meridian/serve/openai"
)

// Requests of a model are not looked for where only engines of others have room.
func TestRoomForAModel(t *testing.T) {
	e := &Engine{Role: placement.Decode}
	e.About.Store(&About{Models: []string{"m"}, Kind: openai.KindMeridian})
	if RoomFor("m", []*Engine{e}) {
		t.Error("it has told of no room")
	}
	e.room.Store(2)
	e.Arriving.Store(1)
	if !RoomFor("m", []*Engine{e}) || RoomFor("other", []*Engine{e}) {
		t.Error("it has room for one more of its own model")
	}
	e.Arriving.Store(2)
	if RoomFor("m", []*Engine{e}) {
		t.Error("those on their way take its room")
	}
}

// setWallClock is a time as a machine has it whose wall clock was set, and whose monotonic one
// knows nothing of it.
func setWallClock(t *testing.T, at time.Time, ahead time.Duration) time.Time {
	t.Helper()
	// Package time has no way to make such a Time. Its first word has the seconds of the
	// wall clock above 30 bits of nanoseconds.
	set := at
	*(*uint64)(unsafe.Pointer(&set)) += uint64(int64(ahead/time.Second)) << 30
	if set.Round(0).Sub(at.Round(0)) != ahead || set.Sub(at) != 0 {
		t.Fatal("no clock can be set so: package time has other Times by now")
	}
	return set
}

// An engine that took no more is full for as long as that is believed, and no longer where the
// wall clock is set back meanwhile.
func TestFullWhileTheClockIsSet(t *testing.T) {
	r, e := New(Options{}), &Engine{Key: "e"}
	r.Refused(e, time.Second)
	now := time.Now()
	for _, ahead := range []time.Duration{0, -3 * time.Hour, 3 * time.Hour} {
		if !e.isFull(setWallClock(t, now, ahead)) {
			t.Errorf("%v: it has room at once", ahead)
		}
		if e.isFull(setWallClock(t, now.Add(2*time.Second), ahead)) {
			t.Errorf("%v: it is full for longer than it was said to be", ahead)
		}
	}
}
