package doorserver

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// Why a hand-off failed may be in the words of another machine, cut in the middle
// of a letter. Neither an event nor a reply may be lost over it, nor the agent.
func TestTextThatIsNoUTF8(t *testing.T) {
	why := &door.Problem{Code: "unable", Message: "no\xff" + strings.Repeat("é", 1<<10)}
	o := newOutbox(1 << 20)
	if !o.addEvent(door.Event{Kind: door.Freed, Transfer: [16]byte{1}}) || !o.addEvent(door.Event{Kind: door.Failed, Problem: why}) || !o.addFrame(replyFrame(7, why), nil) {
		t.Fatal("an outbox that is empty takes nothing")
	}
	wire := o.take().frames
	var events doorpb.Event
	length, _ := protowire.ConsumeFixed32(wire)
	if err := proto.Unmarshal(wire[6:4+length], &events); err != nil || len(events.Kinds) != 2 {
		t.Fatalf("%v came, %v", &events, err)
	}
	if text := events.Problems[1].Message; !strings.HasPrefix(text, "no?é") || len(text) > 1<<10 {
		t.Errorf("%d bytes: %.20q", len(text), text)
	}
	var reply doorpb.Reply
	if err := proto.Unmarshal(wire[4+length+6:], &reply); err != nil || reply.Request != 7 || reply.Problem.Code != "unable" {
		t.Errorf("%v came, %v", &reply, err)
	}
}

// What waits for an engine that does not read is counted with the reasons in it.
func TestBacklogCountsTexts(t *testing.T) {
	const limit = 64 << 10
	o := newOutbox(limit)
	why := &door.Problem{Code: "unable", Message: strings.Repeat("x", 1<<10)}
	told := 0
	for o.addEvent(door.Event{Kind: door.Failed, Problem: why}) {
		told++
	}
	if wire := o.take().frames; told > 64 || len(wire) > limit+2<<10 {
		t.Errorf("%d events, %d bytes", told, len(wire))
	}
}
