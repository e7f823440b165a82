package kvevents

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/serve/kvevents/kveventstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is what a subscriber told: the times of batches, and resets.
type journal struct {
	mu      sync.Mutex
	changed *sync.Cond
	lines   []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	j.changed.Broadcast()
}

// await waits until exactly these lines have been told, and forgets them.
func (j *journal) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.AfterFunc(time.Minute, func() { j.add("too late") })
	defer deadline.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		got := strings.Join(j.lines, " ")
		if got == want {
			j.lines = nil
			return
		}
		if !strings.HasPrefix(want, got) {
			t.Fatalf("told %q, want %q", got, want)
		}
		j.changed.Wait()
	}
}

func endpoint(t *testing.T, address string) Endpoint {
	t.Helper()
	e, err := ParseEndpoint("tcp://"+address, "")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// following opens a subscriber to p, with replays or without.
func following(t *testing.T, p *kveventstest.Publisher, replays bool) (*Subscriber, *journal) {
	t.Helper()
	j := &journal{}
	j.changed = sync.NewCond(&j.mu)
	events, replay := p.Addresses()
	o := Options{
		Events: endpoint(t, events), Retry: time.Millisecond, RetryMost: 20 * time.Millisecond,
		Apply: func(b Batch) { j.add(fmt.Sprint(b.Time)) },
		Reset: func(string) { j.add("reset") },
	}
	if replays {
		o.Replay = endpoint(t, replay)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, j
}

func at(time float64) []byte { return kveventstest.Batch(time, kveventstest.Cleared()) }

func TestFollow(t *testing.T) {
	p := kveventstest.New(t)
	p.Publish(at(0)) // before the subscriber listened
	p.Publish(at(1))
	s, j := following(t, p, true)
	j.await(t, "0 1")
	p.AwaitSubscriber()
	p.Publish(at(2))
	j.await(t, "2")
	p.Lose(at(3))
	p.Lose(at(4))
	p.Publish(at(5))
	p.Publish(at(6))
	j.await(t, "3 4 5 6")
	st := s.Status()
	if !st.Connected || st.Sequence != 6 || st.Batches != 7 || st.Gaps != 1 || st.Resets != 0 || st.Replayed < 4 || st.Problem != "" || st.LastBatch.IsZero() {
		t.Errorf("status %+v", st)
	}
}

func TestConnectionLost(t *testing.T) {
	p := kveventstest.New(t)
	_, j := following(t, p, true)
	p.AwaitSubscriber()
	p.Publish(at(0))
	j.await(t, "0")
	p.Break()
	p.Publish(at(1))
	p.Publish(at(2))
	j.await(t, "1 2") // once each, and nothing anew
	p.AwaitSubscriber()
	p.Publish(at(3))
	j.await(t, "3")
}

// A publisher that was born again counts from nothing: what its predecessor
// said is not true any more, even where the numbers would fit.
func TestBornAgain(t *testing.T) {
	for name, published := range map[string]int{"fewer": 1, "as many": 2, "more": 4} {
		t.Run(name, func(t *testing.T) {
			p := kveventstest.New(t)
			p.Publish(at(0))
			p.Publish(at(1))
			s, j := following(t, p, true)
			j.await(t, "0 1")
			events, replay := p.Addresses()
			p.Close()
			p = kveventstest.New(t, events, replay)
			want := "reset"
			for i := range published {
				p.Lose(at(float64(10 + i)))
				want += fmt.Sprint(" ", 10+i)
			}
			j.await(t, want)
			if st := s.Status(); st.Resets != 1 || st.Reconnects == 0 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// What a publisher does not remember is begun anew, not glued together.
func TestTooOld(t *testing.T) {
	p := kveventstest.New(t)
	p.Keep = 3
	p.Publish(at(0))
	_, j := following(t, p, true)
	j.await(t, "0")
	p.AwaitSubscriber()
	for i := range 5 {
		p.Lose(at(float64(1 + i)))
	}
	p.Publish(at(6))
	j.await(t, "reset 4 5 6")
}

// A replay that leaves something out in the middle is asked for again.
func TestHolesInReplays(t *testing.T) {
	p := kveventstest.New(t)
	for i := range 10 {
		p.Lose(at(float64(i)))
	}
	p.SkipInReplay(4)
	p.SkipInReplay(7)
	_, j := following(t, p, true)
	j.await(t, "0 1 2 3 4 5 6 7 8 9")
	if n := p.Replays(); n != 2 {
		t.Errorf("%d replays", n)
	}
}

func TestOldReplays(t *testing.T) {
	p := kveventstest.New(t)
	p.OldReplays()
	p.Lose(at(0))
	p.Lose(at(1))
	_, j := following(t, p, true)
	j.await(t, "0 1")
}

func TestWithoutReplays(t *testing.T) {
	p := kveventstest.New(t)
	p.Publish(at(0))
	_, j := following(t, p, false)
	p.AwaitSubscriber()
	p.Publish(at(1))
	j.await(t, "1")
	p.Lose(at(2))
	p.Publish(at(3))
	j.await(t, "reset 3")
	p.Break()
	p.AwaitSubscriber()
	p.Publish(at(4))
	j.await(t, "reset 4")
}

// A batch that cannot be read leaves a hole in what is known: it is begun anew.
func TestUnreadable(t *testing.T) {
	p := kveventstest.New(t)
	_, j := following(t, p, true)
	p.AwaitSubscriber()
	p.Publish(at(0))
	p.Publish([]byte{0xc1})
	p.Publish(at(2))
	j.await(t, "0 reset 2")
}

// Whatever the other end says or does not say, a subscriber can be closed at any time.
func TestCloseAnyTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	came := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			came <- c // says nothing
		}
	}()
	s, err := Open(Options{Events: endpoint(t, l.Addr().String()), Apply: func(Batch) {}, Reset: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	c := <-came
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// Who follows many publishers bounds what the messages of each take.
func TestMessagesAreBounded(t *testing.T) {
	p := kveventstest.New(t)
	events, _ := p.Addresses()
	s, err := Open(Options{Events: endpoint(t, events), MessageBytes: 1 << 10, Retry: time.Millisecond, Apply: func(Batch) {}, Reset: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p.AwaitSubscriber()
	p.Publish(make([]byte, 2<<10))
	until.True(t, "the message is refused", func() bool { return s.Status().Reconnects > 0 })
	if st := s.Status(); st.Batches != 0 {
		t.Errorf("status %+v", st)
	}
}

func TestNoPublisherThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := endpoint(t, l.Addr().String())
	_ = l.Close()
	s, err := Open(Options{Events: gone, Retry: time.Millisecond, Apply: func(Batch) {}, Reset: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	until.True(t, "it is tried again", func() bool { return s.Status().Reconnects >= 2 })
	if st := s.Status(); st.Connected || st.Problem == "" {
		t.Errorf("status %+v", st)
	}
}

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"tcp://*:5557":          "tcp://host:5557",
		"tcp://0.0.0.0:5557":    "tcp://host:5557",
		"tcp://10.0.0.3:5557":   "tcp://10.0.0.3:5557",
		"tcp://[::1]:5557":      "tcp://[::1]:5557",
		"ipc:///run/events":     "ipc:///run/events",
		"inproc://cache":        "",
		"tcp://*:0":             "",
		"tcp://*":               "",
		"tcp://10.0.0.3:70000":  "",
		"10.0.0.3:5557":         "",
		"http://10.0.0.3:5557/": "",
		"ipc://":                "",
	} {
		got, err := ParseEndpoint(text, "host")
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	e, _ := ParseEndpoint("tcp://h:5557", "")
	if third, err := e.Rank(3); err != nil || third.String() != "tcp://h:5560" {
		t.Errorf("rank 3 is at %v, %v", third, err)
	}
	e, _ = ParseEndpoint("ipc:///run/events", "")
	if _, err := e.Rank(1); err == nil {
		t.Error("a path has a second rank")
	}
}
