package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/until"
)

// pseudoTerminal is both ends of one: what a person has, and what a program sees.
func pseudoTerminal(t *testing.T, columns, rows uint16) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	return person, program
}

// sentText is everything that a terminal was sent.
type sentText struct {
	mu   sync.Mutex // protects what follows
	text bytes.Buffer
}

func (s *sentText) read(from io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits for a text that is sent after mark bytes.
func (s *sentText) await(t *testing.T, mark int, text string) (end int) {
	t.Helper()
	until.Well(t, fmt.Sprintf("%q is shown", text), func() string {
		s.mu.Lock()
		all := s.text.String()
		s.mu.Unlock()
		if end = len(all); strings.Contains(all[mark:], text) {
			return ""
		}
		return fmt.Sprintf("this was: %.4000q", all[mark:])
	})
	return end
}

// A person looks at a cell, pauses, and leaves, in a terminal that is as it was then.
func TestTopInATerminal(t *testing.T) {
	looks := 0
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			looks++ // one client, one connection at a time
			fmt.Fprintf(w, "meridian_gateway_requests{state=\"running\"} %d\n", 1000+looks)
			return
		}
		fmt.Fprint(w, `{"latest": [{"id": "the-slow-one", "latency": {"handoff_ms": 1234}}]}`)
	}))
	defer gateway.Close()
	person, program := pseudoTerminal(t, 120, 40)
	command := exec.Command("meridian", "top", "--interval", "100ms", "--admin", gateway.URL)
	command.Stdin, command.Stdout, command.Stderr = program, program, program
	command.Env = append(os.Environ(), "TERM=xterm-256color", "HOME="+t.TempDir())
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	var shown sentText
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		shown.read(person)
	}()

	press := func(key string) {
		if _, err := person.WriteString(key); err != nil {
			t.Fatal(err)
		}
	}
	at := shown.await(t, 0, "the-slow-one")
	at = shown.await(t, at, "10") // it goes on: the number of running requests changes
	press("p")
	at = shown.await(t, at, "PAUSED")
	press("p")
	at = shown.await(t, at, "every")
	press("s")
	shown.await(t, at, "name")
	press("q")
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		_ = command.Process.Kill()
		t.Fatal("it does not end")
	}
	after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if *after != *before {
		t.Error("the terminal was left as another")
	}
	shown.await(t, 0, "\x1b[?1049l") // the screen before is back
	if err := program.Close(); err != nil {
		t.Error(err)
	}
	<-reading // ends when no process has the terminal open any more
}
