package roster

import (
	"testing"

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
