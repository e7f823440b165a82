package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"meridian/run/cell"
	"meridian/run/cell/openaiclient"
	"meridian/serve/openai"
)

type chatCommand struct {
	URL         string   `placeholder:"URL" help:"The API to talk to, without /v1 (default: the cell's)."`
	Model       string   `placeholder:"NAME" help:"Which model (default: the first that the API lists)."`
	APIKey      string   `placeholder:"KEY" help:"Key for the API, if it wants one (default: the first of MERIDIAN_API_KEY; for the cell, one of gateway.api_key_file)."`
	State       string   `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory of the cell (default: agent.state_dir of the configuration)."`
	System      string   `placeholder:"TEXT" help:"What the model is told before everything else."`
	MaxTokens   int      `default:"200" placeholder:"N" help:"How long an answer may be (default: ${default})."`
	Temperature *float64 `placeholder:"T" help:"0 always takes the likeliest token (default: the server's)."`
	NoHistory   bool     `help:"Neither read nor write the file that keeps what was typed for later chats."`
}

const chatHelp = `  /think N   think for N tokens before each answer, where the engine plays a model that thinks
  /reset     begin anew
  /quit      leave, as Ctrl-D does
Ctrl-C ends an answer, and empties a line. Arrows move in a line and bring earlier ones back; Ctrl-A, E, W, U and K are as in a shell.
A pasted text is one message: its line ends are shown as ␤, its tabs as ␉. A line that begins with a space is not remembered.`

func (c *chatCommand) Help() string {
	return "A small chat against the cell that `meridian up` runs, or any server that speaks the OpenAI API. Thoughts are shown dimmed. " +
		"Lines may come from a pipe; then only answers are printed. What is typed at a terminal is kept for later chats, the last " + strconv.Itoa(historyLines) +
		" lines at most, in chat_history of the user's state directory (~/.local/state/meridian), which no other user can read; --no-history does without.\n\n" + chatHelp
}

// client is of the server that flags name, or of the cell.
func (c *chatCommand) client(std *stdio, all *commands) (*openaiclient.Client, error) {
	if c.URL != "" {
		return &openaiclient.Client{URL: strings.TrimSuffix(strings.TrimSuffix(c.URL, "/"), "/v1"), Key: cmp.Or(c.APIKey, keyOfEnvironment())}, nil
	}
	in, err := all.load(std)
	if err != nil {
		return nil, err
	}
	dir, err := stateDir(c.State, std, all)
	if err != nil {
		return nil, err
	}
	r, err := cell.ReadRecord(dir)
	if errors.Is(err, cell.ErrNoCell) || (err == nil && r.Gateway == "") {
		err = fmt.Errorf("%w with the state directory %s", cell.ErrNoCell, dir)
		return nil, &failure{err: err, hint: "`meridian up` starts one; --url names another server", status: exitFailure}
	}
	if err != nil {
		return nil, err
	}
	entrance, err := newEntrance(in.Config)
	if err != nil {
		return nil, err
	}
	client := entrance.client(r.Gateway)
	client.Key = cmp.Or(c.APIKey, client.Key)
	return client, nil
}

func (c *chatCommand) Run(std *stdio, all *commands) error {
	client, err := c.client(std, all)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	in, isFile := std.in.(*os.File)
	s := &conversation{
		client: client, out: std.out, err: std.err, interrupts: signals, asks: isFile && isTerminal(in) && std.terminal, dims: std.terminal,
		maxTokens: c.MaxTokens, temperature: c.Temperature, system: c.System,
	}
	if err := s.choose(c.Model); err != nil {
		return err
	}
	s.reset()
	if !s.asks || os.Getenv("TERM") == "dumb" { // such a terminal cannot move its cursor
		s.lines = readLines(std.in)
		return s.run(context.Background())
	}
	// The signals that would end the process end the chat, which puts the terminal back.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s.editor = newLineEditor(in, std.terminalOut(), c.history(std))
	return s.run(ctx)
}

// history is what earlier chats have kept. A chat goes on without.
func (c *chatCommand) history(std *stdio) *chatHistory {
	if c.NoHistory {
		return &chatHistory{}
	}
	path, err := chatHistoryPath()
	if err != nil {
		fmt.Fprintln(std.err, printable(err.Error()))
		return &chatHistory{}
	}
	h, err := openChatHistory(path)
	if err != nil {
		fmt.Fprintln(std.err, printable(err.Error()))
	}
	h.err = nil // told
	return h
}

// readLines hands over what is typed. It ends with the input, or with the
// process: nothing wakes a reader of a terminal.
func readLines(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, longestMessage)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// conversation is one chat with its history.
type conversation struct {
	client     *openaiclient.Client
	out, err   io.Writer
	editor     *lineEditor   // of a person at a terminal
	lines      <-chan string // without an editor
	interrupts <-chan os.Signal
	asks       bool // a person types
	dims       bool // a person reads

	model       string
	system      string
	maxTokens   int
	temperature *float64
	think       *int
	messages    []openai.Message
	failures    int // lines that failed
}

// choose finds the model.
func (s *conversation) choose(model string) error {
	if s.model = model; model != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	models, err := s.client.Models(ctx)
	if err != nil {
		if unreachable(err) {
			err = errors.New("no server answers there")
		}
		return &failure{err: fmt.Errorf("%s does not list its models: %w", s.client.URL, err), hint: "`meridian status` shows whether the cell is up", status: exitFailure}
	}
	if len(models) == 0 {
		return fmt.Errorf("%s has no models", s.client.URL)
	}
	s.model = models[0].ID
	return nil
}

func (s *conversation) reset() {
	s.messages = nil
	if s.system != "" {
		s.messages = []openai.Message{{Role: "system", Content: openai.Content(s.system)}}
	}
}

func (s *conversation) run(ctx context.Context) error {
	if s.asks {
		fmt.Fprintf(s.out, "%s at %s; /help lists what there is beside talking, Ctrl-D leaves\n", oneLine(s.model), s.client.URL)
	}
	for {
		line, err := s.next(ctx)
		if errors.Is(err, io.EOF) || (err == nil && !s.take(ctx, strings.TrimSpace(line))) {
			return s.leave()
		}
		if err != nil {
			return errors.Join(err, s.leave())
		}
	}
}

// next is what is said next; io.EOF is the end of the chat.
func (s *conversation) next(ctx context.Context) (string, error) {
	if s.editor != nil {
		line, err := s.editor.next(ctx, s.interrupts)
		if err != nil {
			return "", err
		}
		if h := s.editor.history; h.err != nil {
			s.complain(h.err)
			h.err = nil
		}
		if s.editor.keys.tooLong {
			s.complain(fmt.Errorf("what was pasted has more than %d MiB; it was not sent", longestMessage>>20))
			return "", nil
		}
		return line, nil
	}
	if s.asks {
		fmt.Fprint(s.out, "> ")
	}
	select {
	case line, more := <-s.lines:
		if !more {
			return "", io.EOF
		}
		return line, nil
	case <-s.interrupts:
		return "", io.EOF
	}
}

func (s *conversation) leave() error {
	if s.asks {
		fmt.Fprintln(s.out)
		return nil
	}
	if s.failures > 0 {
		return fmt.Errorf("%d of the lines failed; what went wrong stands above", s.failures)
	}
	return nil
}

// take handles a line; false leaves.
func (s *conversation) take(ctx context.Context, line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "":
	case strings.Contains(line, "\n"): // pasted, and no command, whatever it begins with
		s.say(ctx, line)
	case word == "/quit" || word == "/exit":
		return false
	case word == "/reset":
		s.reset()
	case word == "/help":
		fmt.Fprintln(s.out, chatHelp)
	case word == "/think":
		n, err := strconv.Atoi(strings.TrimSpace(rest))
		if err != nil || n < 0 {
			s.complain(errors.New("/think takes a number of tokens"))
			break
		}
		s.think = &n
	case strings.HasPrefix(word, "/"):
		s.complain(fmt.Errorf("there is no %s; /help lists what there is", word))
	default:
		s.say(ctx, line)
	}
	return true
}

func (s *conversation) complain(err error) {
	s.failures++
	fmt.Fprintln(s.err, printable(err.Error()))
}

// say sends a message and shows the answer as it comes.
func (s *conversation) say(ctx context.Context, text string) {
	s.messages = append(s.messages, openai.Message{Role: "user", Content: openai.Content(text)})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := openai.ChatRequest{
		Sampling: openai.Sampling{Model: s.model, MaxTokens: &s.maxTokens, Temperature: s.temperature, ThinkTokens: s.think, Stream: true},
		Messages: s.messages,
	}
	type result struct {
		answer *openaiclient.Answer
		err    error
	}
	shown := &speech{w: s.out, dims: s.dims}
	done := make(chan result, 1)
	go func() {
		answer, err := s.client.Chat(ctx, request, shown.piece)
		done <- result{answer, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-s.interrupts:
		cancel()
		r = <-done
	}
	shown.end()
	if r.err != nil && !errors.Is(r.err, context.Canceled) {
		s.complain(s.advised(r.err))
	}
	// What was said until then belongs to the history; a question that was not
	// answered at all does not.
	if r.answer == nil || r.answer.Text == "" {
		s.messages = s.messages[:len(s.messages)-1]
		return
	}
	s.messages = append(s.messages, openai.Message{Role: "assistant", Content: openai.Content(r.answer.Text)})
}

func (s *conversation) advised(err error) error {
	var e *openai.Error
	if unreachable(err) {
		return fmt.Errorf("no server answers at %s any more: `meridian status` shows whether the cell is up; what you said is not lost, send it again when it is", s.client.URL)
	}
	if errors.As(err, &e) && e.Code != nil && *e.Code == openai.CodeContextLength {
		return fmt.Errorf("%w (/reset begins anew)", err)
	}
	return err
}

// unreachable tells whether no server is there, or one left in the middle of a word.
func unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// speech shows an answer; a program that reads gets no thoughts.
type speech struct {
	w    io.Writer
	dims bool

	dimmed, said bool
}

func (s *speech) piece(p openaiclient.Piece) {
	if p.Thought != "" && s.dims {
		if !s.dimmed {
			fmt.Fprint(s.w, "\x1b[2m")
		}
		s.dimmed, s.said = true, true
		fmt.Fprint(s.w, s.printable(p.Thought))
	}
	if p.Text != "" {
		s.bright()
		s.said = true
		fmt.Fprint(s.w, s.printable(p.Text))
	}
}

func (s *speech) bright() {
	if s.dimmed {
		fmt.Fprint(s.w, "\x1b[0m\n")
	}
	s.dimmed = false
}

func (s *speech) end() {
	s.bright()
	if s.said {
		fmt.Fprintln(s.w)
	}
}

// printable keeps a model from driving the terminal.
func (s *speech) printable(text string) string {
	if !s.dims {
		return text
	}
	return printable(text)
}
