package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// playing has this test binary play the parts of a cell.
const playing = "MERIDIAN_FAKE_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(playing) {
	case "part":
		play(os.Args[1:])
	case "python":
		playPython(os.Args[1:])
	case "supervisor":
		supervise(os.Args[1])
	default:
		goleak.VerifyTestMain(m)
	}
}

// flagOf finds the value of a flag of the real commands.
func flagOf(args []string, name string) string {
	for i, arg := range args[:len(args)-1] {
		if arg == name {
			return args[i+1]
		}
	}
	return ""
}

// play acts as one part: it says that it is ready, serves, and leaves when it
// is told to. A file in the state directory may tell it to misbehave.
func play(args []string) {
	command, state := args[0], flagOf(args, "--state")
	name, line := command, "directory ready at unix://nowhere"
	listen := "127.0.0.1:0"
	switch command {
	case "agent":
		name = "agent-" + flagOf(args, "--name")
		line = "agent " + flagOf(args, "--name") + " ready (fake)"
	case "engine":
		name = flagOf(args, "--id")
		line = "engine " + name + " ready at http://ADDRESS (fake)"
	case "gateway":
		listen = flagOf(args, "--listen")
		line = "gateway ready at http://ADDRESS, admin at http://ADDRESS"
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	chronicle(state, "start "+name)
	fmt.Fprintln(os.Stderr, "I am", name)
	habit, _ := os.ReadFile(filepath.Join(state, "habit-"+name))
	switch string(habit) {
	case "fail":
		fmt.Fprintln(os.Stderr, "no luck today")
		os.Exit(1)
	case "silent":
		select {}
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() { _ = http.Serve(listener, fakeService(name, state, string(habit))) }()
	fmt.Println(strings.ReplaceAll(line, "ADDRESS", listener.Addr().String()))
	if string(habit) == "die" {
		os.Exit(3)
	}
	<-told
	chronicle(state, "stop "+name)
	if string(habit) == "deaf" {
		select {}
	}
	os.Exit(0)
}

func fakeService(name, state, habit string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		if habit == "mute" {
			<-r.Context().Done()
			return
		}
		door := "serving"
		if habit == "alone" {
			door = "lost"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"engine": name, "cut": "tp=1", "blocks": map[string]int{"total": 10, "free": 7, "held": 1}, "running": 2, "door": door,
		})
	})
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if habit == "mute" {
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"engines": knownTo(state, habit)})
	})
	return mux
}

// knownTo is the workers that a fake gateway has found: all, or, if it is half
// blind, those that decode.
func knownTo(state, habit string) (engines []map[string]any) {
	r, err := ReadRecord(state)
	if err != nil {
		return nil
	}
	for _, p := range r.Parts {
		engines = append(engines, map[string]any{"url": p.URL, "up": habit != "half blind" || p.Kind == Decode})
	}
	return engines
}

func chronicle(state, event string) {
	f, err := os.OpenFile(filepath.Join(state, "chronicle"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		fmt.Fprintln(f, event)
		f.Close()
	}
}

// supervise is `meridian up` without the talk.
func supervise(state string) {
	o := fakeOptions(state)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	c, err := Open(ctx, o)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("up")
	<-ctx.Done()
	if err := c.Close(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func fakeOptions(state string) Options {
	return Options{
		StateDir: state, Spec: DefaultSpec(), Program: os.Args[0], Environment: []string{playing + "=part", "GORACE=atexit_sleep_ms=0"},
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", FirstPause: 10 * time.Millisecond,
	}
}

// stage is a state directory and what happens in it.
type stage struct {
	t       *testing.T
	options Options
	events  chan Event
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, options: fakeOptions(filepath.Join(t.TempDir(), "state")), events: make(chan Event, 1000)}
	s.options.Watch = func(e Event) { s.events <- e }
	if err := os.Mkdir(s.options.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) habit(part, habit string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.options.StateDir, "habit-"+part), []byte(habit), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) open() *Cell {
	s.t.Helper()
	c, err := Open(s.t.Context(), s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if !s.over(c) {
			s.close(c)
		}
	})
	return c
}

func (s *stage) over(c *Cell) bool {
	_, err := c.lock.Stat()
	return err != nil
}

func (s *stage) close(c *Cell) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		s.t.Error(err)
	}
}

// await waits for a part to come into a state.
func (s *stage) await(part string, state State) Event {
	s.t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case e := <-s.events:
			if e.Part == part && e.State == state {
				return e
			}
		case <-late:
			s.t.Fatalf("%s did not become %s", part, state)
		}
	}
}

// chronicle is what the fake parts wrote down, in order.
func (s *stage) chronicle() []string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.options.StateDir, "chronicle"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
