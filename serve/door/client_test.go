package door

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/serve/door/doorpb"
)

// agentOf is an agent of a test's making: it welcomes, and then does what the test
// says with every frame.
func agentOf(t *testing.T, each func(c *Conn, f Frame) bool) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "door.sock")
	agentAt(t, socket, each)
	return socket
}

// agentAt is one at a socket that the test names.
func agentAt(t *testing.T, socket string, each func(c *Conn, f Frame) bool) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer socket.Close()
				c := NewConn(socket.(*net.UnixConn))
				for {
					f, err := c.Read(MaxFrameBytes)
					if err != nil || !each(c, f) {
						return
					}
					f.Close()
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
}

func welcome(c *Conn, f Frame) bool {
	switch f.Type {
	case doorpb.FrameType_FRAME_TYPE_HELLO:
		return c.Send(doorpb.FrameType_FRAME_TYPE_WELCOME, &doorpb.Welcome{Version: Version}, nil) == nil
	case doorpb.FrameType_FRAME_TYPE_PUBLISH:
		serving := &doorpb.Event{
			Kinds: []doorpb.EventKind{doorpb.EventKind_EVENT_KIND_SERVING}, Transfers: make([]byte, 16), Accepted: []bool{false}, Problems: []*doorpb.Problem{{}},
		}
		var m doorpb.Publish
		return f.Unmarshal(&m) == nil && c.Send(doorpb.FrameType_FRAME_TYPE_EVENT, serving, nil) == nil &&
			c.Send(doorpb.FrameType_FRAME_TYPE_REPLY, &doorpb.Reply{Request: m.GetRequest()}, nil) == nil
	}
	return true
}

func options(socket string, events func(Event)) Options {
	layout, err := kv.ParseLayout("LBHNC")
	if err != nil {
		panic(err)
	}
	return Options{Socket: socket, Engine: "e", Role: "both", Events: events, Publish: Publication{
		Geometry: kv.Uniform(1, kv.Layer{KVHeads: 1, HeadDim: 8}, kv.Float32), Parallelism: kv.Split(1, 1, 1), Layout: layout, BlockTokens: 1, Blocks: 1,
	}}
}

func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestNoAgentAnswers(t *testing.T) {
	_, err := Open(shortly(t), options(filepath.Join(t.TempDir(), "none"), nil))
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// An engine whose agent is away registers when that is there; what an agent
// refuses is refused at once.
func TestAgentMayBeAway(t *testing.T) {
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	told := make(chan Event, 8)
	o := options(filepath.Join(dir, "door.sock"), func(e Event) { told <- e })
	o.AgentMayBeAway = true
	client, err := Open(shortly(t), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Offer(shortly(t), Offer{}); client.Serving() || !errors.Is(err, ErrNotServing) {
		t.Errorf("without an agent: %v", err)
	}
	agentAt(t, o.Socket, welcome)
	select {
	case e := <-told:
		if e.Kind != Serving || !client.Serving() {
			t.Errorf("%v", e)
		}
	case <-shortly(t).Done():
		t.Error("it has not registered")
	}
	if err := client.Close(shortly(t)); err != nil {
		t.Error(err)
	}
	o.Socket = agentOf(t, func(c *Conn, _ Frame) bool {
		_ = c.Send(doorpb.FrameType_FRAME_TYPE_REPLY, &doorpb.Reply{Problem: &doorpb.Problem{Code: "denied", Message: "not you"}}, nil)
		return false
	})
	var problem *Problem
	if _, err := Open(shortly(t), o); !errors.As(err, &problem) || problem.Code != "denied" {
		t.Errorf("refused: %v", err)
	}
}

// A door that is full says so and shuts, whether or not it was spoken to.
func TestRefusedBeforeTheFirstWord(t *testing.T) {
	agent, engine := pair(t)
	reply := &doorpb.Reply{Problem: &doorpb.Problem{Code: "busy", Message: "enough are here"}}
	if err := errors.Join(agent.Send(doorpb.FrameType_FRAME_TYPE_REPLY, reply, nil), agent.Close()); err != nil {
		t.Fatal(err)
	}
	var problem *Problem
	if _, err := (&link{conn: engine}).greet(shortly(t), &doorpb.Hello{}); !errors.As(err, &problem) || problem.Code != "busy" {
		t.Errorf("got %v", err)
	}
}

func TestHangingAgentIsGivenUp(t *testing.T) {
	socket := agentOf(t, func(*Conn, Frame) bool { return true }) // it takes everything and says nothing
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := Open(ctx, options(socket, nil)); err == nil || time.Since(began) > time.Minute {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// An agent that hangs may still touch what it was asked for, and nothing else is
// given to it.
func TestNothingIsAskedOfAHangingAgent(t *testing.T) {
	hang := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(hang) })
	defer letGo()
	socket := agentOf(t, func(c *Conn, f Frame) bool {
		if f.Type != doorpb.FrameType_FRAME_TYPE_OFFER {
			return welcome(c, f)
		}
		_ = c.Send(doorpb.FrameType_FRAME_TYPE_STEP, &doorpb.Step{}, nil) // nonsense, so that it is left at once
		<-hang
		return false
	})
	freed := make(chan Event, 8)
	c, err := Open(shortly(t), options(socket, func(e Event) {
		if e.Kind == Freed {
			freed <- e
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := c.Offer(shortly(t), Offer{Transfer: [16]byte{1}})
		first <- err
	}()
	until.True(t, "the engine serves no more", func() bool { return !c.Serving() })
	if _, err := c.Offer(shortly(t), Offer{Transfer: [16]byte{2}}); !errors.Is(err, ErrNotServing) {
		t.Errorf("a second offer: %v", err)
	}
	if len(freed) != 0 {
		t.Error("what the agent may touch was freed")
	}
	letGo()
	if err := <-first; !errors.Is(err, ErrLost) {
		t.Errorf("the first offer: %v", err)
	}
	if err := c.Close(shortly(t)); err != nil {
		t.Error(err)
	}
}

func TestStrangeAnswers(t *testing.T) {
	for name, each := range map[string]func(c *Conn, f Frame) bool{
		"a version of the future": func(c *Conn, _ Frame) bool {
			return c.Send(doorpb.FrameType_FRAME_TYPE_WELCOME, &doorpb.Welcome{Version: 9}, nil) == nil
		},
		"something else": func(c *Conn, _ Frame) bool {
			return c.Send(doorpb.FrameType_FRAME_TYPE_STEP, &doorpb.Step{}, nil) == nil
		},
		"no frame": func(c *Conn, _ Frame) bool { return c.Write([]byte("HTTP/1.1 400 Bad Request\r\n"), nil) == nil },
		"the end":  func(*Conn, Frame) bool { return false },
		"a death at the last word": func(c *Conn, f Frame) bool {
			return f.Type != doorpb.FrameType_FRAME_TYPE_PUBLISH && welcome(c, f)
		},
	} {
		began := time.Now()
		if _, err := Open(shortly(t), options(agentOf(t, each), nil)); err == nil {
			t.Errorf("%s: it is registered", name)
		}
		if took := time.Since(began); took > 30*time.Second { // less than Open may take
			t.Errorf("%s: it took %v to be noticed", name, took)
		}
	}
}

// Whatever is outstanding when the agent is lost is told to have ended, once, and
// the client registers again by itself.
func TestLostAgentFreesEverything(t *testing.T) {
	var events []Event
	told := make(chan Event, 64)
	socket := agentOf(t, func(c *Conn, f Frame) bool {
		switch f.Type {
		case doorpb.FrameType_FRAME_TYPE_OFFER:
			var m doorpb.Offer
			if f.Unmarshal(&m) != nil {
				return false
			}
			reply := &doorpb.Reply{Request: m.GetRequest(), With: &doorpb.Reply_Ticket{Ticket: []byte("t")}}
			if m.GetLayers() > 0 {
				reply = &doorpb.Reply{Request: m.GetRequest(), Problem: &doorpb.Problem{Code: "contradiction"}}
			}
			return c.Send(doorpb.FrameType_FRAME_TYPE_REPLY, reply, nil) == nil
		case doorpb.FrameType_FRAME_TYPE_ACCEPT:
			var m doorpb.Accept
			return f.Unmarshal(&m) == nil && c.Send(doorpb.FrameType_FRAME_TYPE_REPLY,
				&doorpb.Reply{Request: m.GetRequest(), With: &doorpb.Reply_Transfer{Transfer: append(make([]byte, 15), 2)}}, nil) == nil
		case doorpb.FrameType_FRAME_TYPE_PROGRESS:
			return false // it dies
		}
		return welcome(c, f)
	})
	client, err := Open(shortly(t), options(socket, func(e Event) { told <- e }))
	if err != nil {
		t.Fatal(err)
	}
	hear := func() Event {
		select {
		case e := <-told:
			return e
		case <-time.After(time.Minute):
			t.Fatalf("nothing more after %v", events)
			return Event{}
		}
	}
	if e := hear(); e.Kind != Serving {
		t.Errorf("%v comes first", e.Kind)
	}
	if ticket, err := client.Offer(shortly(t), Offer{Transfer: [16]byte{1}}); err != nil || string(ticket) != "t" {
		t.Errorf("%q, %v", ticket, err)
	}
	if _, err := client.Offer(shortly(t), Offer{Transfer: [16]byte{1}, Layers: 1}); err == nil {
		t.Error("a contradiction is taken") // and what was offered first still stands
	}
	if _, err := client.Accept(shortly(t), Accept{}); err != nil {
		t.Error(err)
	}
	client.Progress([16]byte{1}, 1, 0)
	for len(events) == 0 || events[len(events)-1].Kind != Serving {
		events = append(events, hear())
	}
	count := make(map[EventKind]int)
	for _, e := range events {
		count[e.Kind]++
	}
	if count[Failed] != 1 || count[Freed] != 2 || count[Fenced] != 1 || count[Serving] != 1 {
		t.Errorf("%v", events)
	}
	if !client.Serving() {
		t.Error("it does not serve")
	}
	if err := client.Close(shortly(t)); err != nil {
		t.Error(err)
	}
	if _, err := client.Offer(shortly(t), Offer{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
