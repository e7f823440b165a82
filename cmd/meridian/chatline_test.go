package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"meridian/serve/openai"
)

// chatTerminal is a person with a chat before them.
type chatTerminal struct {
	t       *testing.T
	person  *os.File
	program *os.File
	before  unix.Termios
	command *exec.Cmd
	ended   chan error
	shown   *sentText
	reading chan struct{}
	at      int // what was shown before was looked at
}

func terminalMode(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

func openChat(t *testing.T, home, url string, args ...string) *chatTerminal {
	t.Helper()
	c := &chatTerminal{t: t, ended: make(chan error, 1), shown: &sentText{}, reading: make(chan struct{})}
	c.person, c.program = pseudoTerminal(t, 80, 24)
	c.before = terminalMode(t, c.program)
	c.command = exec.Command("meridian", append([]string{"chat", "--url", url}, args...)...)
	c.command.Stdin, c.command.Stdout, c.command.Stderr = c.program, c.program, c.program
	c.command.Env = append(os.Environ(), "TERM=xterm-256color", "HOME="+home, "XDG_STATE_HOME=")
	c.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.ended <- c.command.Wait() }()
	go func() {
		defer close(c.reading)
		c.shown.read(c.person)
	}()
	c.awaits("> ")
	return c
}

func (c *chatTerminal) awaits(text string) {
	c.t.Helper()
	c.at = c.shown.await(c.t, c.at, text)
}

func (c *chatTerminal) press(keys string) {
	c.t.Helper()
	if _, err := c.person.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// ends waits for the end of the chat, and sees that the terminal is as it was.
func (c *chatTerminal) ends(well bool) {
	c.t.Helper()
	select {
	case err := <-c.ended:
		if (err == nil) != well {
			c.t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		_ = c.command.Process.Kill()
		c.t.Fatal("it does not end")
	}
	if after := terminalMode(c.t, c.program); after != c.before {
		c.t.Error("the terminal was left as another")
	}
	c.shown.await(c.t, 0, unmarkPastes)
	if err := c.program.Close(); err != nil {
		c.t.Error(err)
	}
	<-c.reading
}

// listener hears messages; it answers "go on" without an end.
func listener(t *testing.T) (url string, heard <-chan string) {
	t.Helper()
	messages := make(chan string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == openai.PathModels {
			fmt.Fprint(w, `{"object":"list","data":[{"id":"listener"}]}`)
			return
		}
		var request openai.ChatRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		last := string(request.Messages[len(request.Messages)-1].Content)
		messages <- last
		events := openai.NewEventWriter(w)
		_ = events.SendData([]byte(`{"choices":[{"index":0,"delta":{"content":"noted"},"finish_reason":null}]}`))
		if last == "go on" {
			<-r.Context().Done()
			return
		}
		_ = events.SendData([]byte(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`))
		_ = events.SendData([]byte(openai.Done))
	}))
	t.Cleanup(server.Close)
	return server.URL, messages
}

func hears(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Errorf("it heard %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("it never heard %q", want)
	}
}

// A person edits lines, pastes, ends an answer, empties a line, leaves; the next chat
// knows what was said in this one.
func TestChatAtATerminal(t *testing.T) {
	url, heard := listener(t)
	home := t.TempDir()
	c := openChat(t, home, url)
	for _, said := range []struct{ keys, want string }{
		{"wurld\x1b[D\x1b[D\x1b[D\x7fo\x01hello \x05!", "hello world!"}, // arrows, Backspace, Ctrl-A, Ctrl-E
		{"one two\x17three", "one three"},                               // Ctrl-W
		{"rubbish\x15kept", "kept"},                                     // Ctrl-U
		{"rubbish\x03kept as well", "kept as well"},                     // Ctrl-C
		{"\x1b[A\x1b[A", "kept"},                                        // up
		{"see: " + pasteBegins + "// one\r\n\ttwo\x1b\x03\rthree\n" + pasteEnds, "see: // one\n\ttwo\nthree"},
		{" not remembered", "not remembered"},
		{"größe\x1b[D\x1b[D\x1b[3~ss", "grösse"}, // characters, not bytes
	} {
		c.press(said.keys + "\r")
		hears(t, heard, said.want)
		c.awaits("noted\r\n" + markPastes + "> ")
	}
	c.press("go on\r")
	hears(t, heard, "go on")
	c.awaits("noted")
	c.press("\x03") // the terminal makes a signal of it now
	c.awaits("> ")
	c.press("after\r")
	hears(t, heard, "after")
	c.awaits("noted\r\n" + markPastes + "> ")
	c.press("\x04")
	c.ends(true)

	path := filepath.Join(home, ".local", "state", "meridian", "chat_history")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "hello world!\none three\nkept\nkept as well\nkept\nsee: // one␤␉two␤three␤\ngrösse\ngo on\nafter\n"; string(kept) != want {
		t.Errorf("kept %q, want %q", kept, want)
	}

	c = openChat(t, home, url)
	c.press(strings.Repeat("\x1b[A", 4) + "\r") // a paste is a paste again
	hears(t, heard, "see: // one\n\ttwo\nthree")
	c.awaits("> ")
	c.press("/quit\r")
	c.ends(true)

	c = openChat(t, home, url, "--no-history")
	c.press("\x1b[Aprivate\r")
	hears(t, heard, "private")
	c.awaits("> ")
	c.press("\x04")
	c.ends(true)
	if kept, err = os.ReadFile(path); err != nil || strings.Contains(string(kept), "private") {
		t.Errorf("%q, %v", kept, err)
	}
}

// A signal ends the chat, at the prompt and in an answer, and the terminal is as it was.
func TestChatTerminated(t *testing.T) {
	url, heard := listener(t)
	for _, answering := range []bool{false, true} {
		c := openChat(t, t.TempDir(), url)
		if answering {
			c.press("go on\r")
			hears(t, heard, "go on")
			c.awaits("noted")
		} else {
			c.press("half a li")
			c.awaits("li")
		}
		if err := c.command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		c.ends(false)
	}
}

// Ctrl-Z stops the chat; when it goes on, it has its line again.
func TestChatStopped(t *testing.T) {
	url, heard := listener(t)
	c := openChat(t, t.TempDir(), url)
	c.press("half")
	c.awaits("half")
	if err := c.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// What a shell does meanwhile.
	if err := unix.IoctlSetTermios(int(c.program.Fd()), unix.TCSETS, &c.before); err != nil {
		t.Fatal(err)
	}
	if err := c.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.awaits("> half")
	c.press(" a line\r")
	hears(t, heard, "half a line")
	c.awaits("> ")
	c.press("\x04")
	c.ends(true)
}

// An editor that panics does so where the terminal has been put back.
func TestChatEditorPanics(t *testing.T) {
	person, program := pseudoTerminal(t, 80, 24)
	before := terminalMode(t, program)
	e := newLineEditor(program, io.Discard, &chatHistory{})
	e.editor.History = nil
	if _, err := person.WriteString("\x1b[A"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "nil pointer") {
			t.Errorf("it panicked with %v", p)
		}
		if after := terminalMode(t, program); after != before {
			t.Error("the terminal was left as another")
		}
	}()
	_, err := e.next(context.Background(), nil)
	t.Errorf("it did not panic: %v", err)
}

func TestChatKeys(t *testing.T) {
	long := strings.Repeat("x", longestMessage)
	for name, c := range map[string]struct{ typed, want string }{
		"text":                  {"aé世", "aé世"},
		"not UTF-8":             {"a\xffb", "a?b"},
		"Ctrl-C":                {"\x03", "\x05\x15"},
		"Escape alone":          {"\x1b\x03", "\x05\x15"},
		"Escape twice":          {"\x1b\x1b[A", "\x1b[A"},
		"Home and End":          {"\x1b[1~\x1bOF", "\x01\x05"},
		"a word to the left":    {"\x1bb\x1b[1;5D", "\x1b[1;3D\x1b[1;3D"},
		"keys without use":      {"\x1b[15~\x1bOP\x1bxa", "a"},
		"no end":                {"\x1b[" + strings.Repeat("1", 100) + "a", strings.Repeat("1", 85) + "a"},
		"broken off":            {"\x1b[1\x03", "\x05\x15"},
		"a paste":               {pasteBegins + "a\r\nb\n\nc\td\x03\x1b[A" + pasteEnds + "\r", pasteBegins + "a␤b␤␤c␉d[A" + pasteEnds + "\r"},
		"the end without paste": {pasteEnds + "a", "a"},
		"too much":              {pasteBegins + long + "yz" + pasteEnds, pasteBegins + long + pasteEnds},
	} {
		for _, from := range []io.Reader{strings.NewReader(c.typed), iotest.OneByteReader(strings.NewReader(c.typed))} {
			if _, whole := from.(*strings.Reader); !whole && len(c.typed) > longestMessage {
				continue // a million reads
			}
			k := &keyReader{from: from}
			got, err := io.ReadAll(k)
			if string(got) != c.want || err != nil {
				t.Errorf("%s: %.100q, %v; want %.100q", name, got, err, c.want)
			}
			if k.tooLong != (name == "too much") {
				t.Errorf("%s: too long is %v", name, k.tooLong)
			}
		}
	}
}

func TestChatHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "chat_history")
	h, err := openChatHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * historyLines {
		h.Add(fmt.Sprint("line ", i))
		h.Add(fmt.Sprint("line ", i)) // is one
		if h.Len() > historyLines {
			t.Fatalf("%d lines", h.Len())
		}
	}
	for i := range 3 * historyBytes / historyEntry {
		h.Add(strings.Repeat("x", historyEntry-10) + fmt.Sprint(i))
		if info, err := os.Stat(path); err != nil || info.Size() > historyBytes {
			t.Fatalf("%v, %v", info, err)
		}
	}
	h.Add("")
	h.Add(" secret")
	h.Add(strings.Repeat("y", historyEntry+1))
	h.Add("last")
	again, err := openChatHistory(path)
	if err != nil || !slices.Equal(again.entries, h.entries) || again.At(0) != "last" || h.err != nil {
		t.Errorf("%d lines, %v; want %d, %v", again.Len(), err, h.Len(), h.err)
	}
}

// What a file holds is not believed.
func TestChatHistoryOfStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat_history")
	bad := "good\n\x1b[2Jbad\n\xff\n\n" + strings.Repeat("z", historyEntry+1) + "\nlast"
	if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := openChatHistory(path)
	if info, statErr := os.Stat(path); err != nil || statErr != nil || info.Mode().Perm() != 0o600 || !slices.Equal(h.entries, []string{"good", "last"}) {
		t.Errorf("%.100q, %v, %v, %v", h.entries, info.Mode(), err, statErr)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("0123456\n", historyBytes)+"newest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err = openChatHistory(path)
	if info, statErr := os.Stat(path); err != nil || statErr != nil || info.Size() > historyBytes || h.At(0) != "newest" {
		t.Errorf("%v, %v", err, statErr)
	}
	if h, err = openChatHistory(filepath.Dir(path)); err == nil || h.path != "" {
		t.Errorf("a directory is a history: %v", err)
	}
}
