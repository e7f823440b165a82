package door

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"meridian/serve/door/doorpb"
)

func TestAgree(t *testing.T) {
	many := make([]string, maxFeatures+1)
	for i := range many {
		many[i] = fmt.Sprint("f", i)
	}
	for _, c := range []struct {
		low, high uint32
		features  []string
		common    []string
		code      string
	}{
		{low: 1, high: 1},
		{low: 0, high: 9, features: []string{"status", "refusals", "tomorrow", "status"}, common: []string{"refusals", "status"}},
		{low: 1, high: 1, features: many[:maxFeatures]},
		{low: 2, high: 9, code: "version"},
		{low: 0, high: 0, code: "version"},
		{low: 9, high: 1, code: "version"},
		{low: 1, high: 1, features: many, code: "terms"},
		{low: 1, high: 1, features: []string{""}, code: "terms"},
		{low: 1, high: 1, features: []string{strings.Repeat("x", maxFeatureBytes+1)}, code: "terms"},
	} {
		version, common, p := Agree(c.low, c.high, c.features)
		switch {
		case p != nil && p.Code != c.code, p == nil && c.code != "":
			t.Errorf("%d to %d, %.3q…: %v", c.low, c.high, c.features, p)
		case p == nil && (version != 1 || !slices.Equal(common, c.common)):
			t.Errorf("%d to %d, %.3q…: version %d with %v", c.low, c.high, c.features, version, common)
		}
	}
}

// oldAgent plays testdata/door/agents/old.json.
func oldAgent(t *testing.T) (socket string) {
	t.Helper()
	text, err := os.ReadFile("../../testdata/door/agents/old.json")
	if err != nil {
		t.Fatal(err)
	}
	var agent struct {
		About   string
		Answers map[string][]struct {
			Type  doorpb.FrameType
			Hex   string
			Reply bool
		}
	}
	if err := json.Unmarshal(text, &agent); err != nil {
		t.Fatal(err)
	}
	return agentOf(t, func(c *Conn, f Frame) bool {
		answers, known := agent.Answers[strings.ToLower(strings.TrimPrefix(f.Type.String(), "FRAME_TYPE_"))]
		for _, a := range answers {
			var body []byte
			if a.Reply {
				body = protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), f.Request())
			}
			message, err := hex.DecodeString(a.Hex)
			if err != nil {
				panic(err)
			}
			if c.Write(rawFrame(a.Type, append(body, message...)), nil) != nil {
				return false
			}
		}
		return known
	})
}

// An engine of this build works with an agent from before there were features.
func TestOldAgent(t *testing.T) {
	socket := oldAgent(t)
	events := make(chan Event, 16)
	c, err := Open(shortly(t), options(socket, func(e Event) { events <- e }))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Serving() || c.Has(FeatureRefusals) || c.Has(FeatureStatus) {
		t.Errorf("it serves: %v; it is said to have features that it has not", c.Serving())
	}
	id := [16]byte{1, 15: 1}
	if ticket, err := c.Offer(shortly(t), Offer{Transfer: id, Tokens: []uint32{1}, Tables: [][]uint32{{0}}}); err != nil || len(ticket) == 0 {
		t.Errorf("an offer: %x, %v", ticket, err)
	}
	c.Progress(id, 1, 0)
	if err := c.Cancel(shortly(t), Cancel{Offered: id}); err != nil {
		t.Error(err)
	}
	if e := <-events; e.Kind != Serving {
		t.Errorf("%v came first", e.Kind)
	}
	if e := <-events; e.Kind != Freed || e.Transfer != id || e.Problem.Code != "withdrawn" {
		t.Errorf("%+v came", e)
	}
	if err := c.Close(shortly(t)); err != nil {
		t.Error(err)
	}
	if _, err := AskStatus(shortly(t), socket, "test"); !errors.Is(err, ErrNoStatus) {
		t.Errorf("its status: %v", err)
	}
}

// What a newer agent tells, an engine of this build passes over.
func TestNewerAgent(t *testing.T) {
	newer := func(c *Conn, f Frame) bool {
		if f.Type == doorpb.FrameType_FRAME_TYPE_PUBLISH {
			event := &doorpb.Event{Kinds: []doorpb.EventKind{99}, Transfers: make([]byte, 16), Accepted: []bool{true}, Problems: []*doorpb.Problem{{}}}
			if c.Write(rawFrame(77, []byte{0xff}), nil) != nil || c.Send(doorpb.FrameType_FRAME_TYPE_EVENT, event, nil) != nil {
				return false
			}
		}
		return welcome(c, f)
	}
	events := make(chan Event, 16)
	c, err := Open(shortly(t), options(agentOf(t, newer), func(e Event) { events <- e }))
	if err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Kind != Serving {
		t.Errorf("%v is told to the engine", e.Kind)
	}
	if !c.Serving() {
		t.Error("it does not serve")
	}
	if err := c.Close(shortly(t)); err != nil {
		t.Error(err)
	}
	if e := <-events; e.Kind != Fenced {
		t.Errorf("%v is told at the end", e.Kind)
	}
}

func rawFrame(kind doorpb.FrameType, body []byte) []byte {
	wire := protowire.AppendFixed32(nil, uint32(len(body)+2))
	return append(append(wire, byte(kind), byte(kind>>8)), body...)
}

// A frame is bounded before it is read: what takes two bytes of it may take a
// hundred in memory.
func TestRequestOfManyMessages(t *testing.T) {
	for _, c := range []struct {
		of    proto.Message
		frame Frame
	}{
		{&doorpb.Offer{}, Frame{Type: 5, Body: []byte(strings.Repeat("\x2a\x00", MaxMessages+1))}},
		{&doorpb.Publish{}, Frame{Type: 4, Body: protowire.AppendBytes([]byte{0x12}, []byte(strings.Repeat("\x12\x00", MaxMessages)))}},
	} {
		if err := c.frame.UnmarshalRequest(c.of); !errors.Is(err, ErrFrame) || proto.Size(c.of) != 0 {
			t.Errorf("%v: %v", c.frame.Type, err)
		}
	}
	short := Frame{Type: 5, Body: []byte(strings.Repeat("\x2a\x00", MaxMessages))}
	if err := short.UnmarshalRequest(&doorpb.Offer{}); err != nil {
		t.Error(err)
	}
}
