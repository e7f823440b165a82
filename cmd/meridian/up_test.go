package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/prove/bench"
	"meridian/run/cell"
	"meridian/run/config"
	"meridian/see/ledger"
)

// program is bin/meridian as `make test` names it, else built here: a cell of
// race-detecting engines would take its time.
func program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("MERIDIAN_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "meridian")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// Agents are told to keep nothing, whatever the configuration says.
func TestUpWithoutAStore(t *testing.T) {
	in, err := config.Parse("test", []byte("[store]\nenabled = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	var none sizeOrNone
	if err := none.UnmarshalText([]byte("0")); err != nil {
		t.Fatal(err)
	}
	if s, err := (&upCommand{Engine: "reference", Store: &none}).spec(t.Context(), in); err != nil || s.Store != "0" {
		t.Errorf("%q, %v", s.Store, err)
	}
}

// Thoughts are ended where the configuration says by which ids, and by no engine that could
// not start with that.
func TestUpGoverned(t *testing.T) {
	const marked, named = "[model.thinks]\nthink_start_token_ids = [6]\nthink_end_token_ids = [7]\n", "[model.thinks]\nthink_start_texts = [\"<t>\"]\nthink_end_texts = [\"</t>\"]\n"
	for name, c := range map[string]struct {
		text, model string
		args        []string
		demo, ends  bool
	}{
		"marked":       {text: marked, model: "thinks", ends: true},
		"its path":     {text: marked, model: "org/Thinks", ends: true},
		"another":      {text: marked, model: "other"},
		"by texts":     {text: named, model: "thinks"},
		"unknown":      {model: "thinks"},
		"it guesses":   {text: marked, model: "thinks", args: []string{"--speculative-config", "{}"}},
		"a comparison": {text: marked, model: "thinks", demo: true},
	} {
		in, err := config.Parse("test", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		in.File = "some.toml"
		s := &cell.Spec{Model: c.model, VLLM: &cell.VLLM{Args: c.args}}
		args, environment := (&upCommand{Govern: true, Demo: c.demo}).governed(in, s)
		if !slices.Contains(args, "meridian.vllm.Scheduler") || slices.Contains(args, "meridian.vllm:BudgetLogits") != c.ends {
			t.Errorf("%s: %v", name, args)
		}
		if len(environment) != 1 || !strings.HasPrefix(environment[0], "MERIDIAN_CONFIG=/") {
			t.Errorf("%s: %v", name, environment)
		}
	}
	if _, err := (&upCommand{Engine: "reference", Govern: true}).spec(t.Context(), &config.Loaded{Config: config.Defaults()}); err == nil {
		t.Error("reference engines are governed anyway")
	}
}

// An agent that keeps nothing is still a client of the cell's cache where its configuration
// says so; a flag of 0 leaves the cache out.
func TestAgentThatKeepsNothing(t *testing.T) {
	none, some := &sizeOrNone{}, &sizeOrNone{bench.Size{Bytes: 1 << 30}}
	for _, test := range []struct {
		flag *sizeOrNone
		in   config.Store
		keep uint64
		uses bool
	}{
		{nil, config.Store{Enabled: true, Bytes: 5}, 5, true},
		{nil, config.Store{Enabled: true}, 0, true},
		{nil, config.Store{Bytes: 5}, 5, false},
		{none, config.Store{Enabled: true, Bytes: 5}, 0, false},
		{some, config.Store{}, 1 << 30, true},
	} {
		if keep, uses := (&agentCommand{Store: test.flag}).keeps(&test.in); keep != test.keep || uses != test.uses {
			t.Errorf("%+v: %d, %t", test, keep, uses)
		}
	}
}

// Two agents cannot have one folder: each has its own in the one that is named.
func TestUpAgentsHaveFoldersOfTheirOwn(t *testing.T) {
	in, err := config.Parse("test", []byte("[store]\nenabled = true\n[store.disk]\ndir = \"/var/kv\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := (&upCommand{Engine: "reference"}).spec(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"prefill", "decode"} {
		if got, want := s.AgentEnvironment[agent], "MERIDIAN_STORE_DISK_DIR=/var/kv/"+agent; !slices.Contains(got, want) {
			t.Errorf("agent %s has %q, want %s", agent, got, want)
		}
	}
}

// shell types commands, each with the same state directory.
type shell struct {
	t              *testing.T
	program, state string
	environment    []string
}

func newShell(t *testing.T) *shell {
	return &shell{t: t, program: program(t), state: filepath.Join(t.TempDir(), "s")}
}

func (s *shell) command(args ...string) *exec.Cmd {
	command := exec.Command(s.program, append(args, "--state", s.state)...)
	command.Env = append(append(plainEnvironment(), "HOME="+s.t.TempDir()), s.environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// typed runs a command and returns what it printed; it must end with status.
func (s *shell) typed(status int, input string, args ...string) string {
	s.t.Helper()
	var out, problems bytes.Buffer
	command := s.command(args...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &problems
	_ = command.Run() // the status is looked at
	if got := command.ProcessState.ExitCode(); got != status {
		s.t.Fatalf("meridian %v exits with %d, want %d:\n%s%s", args, got, status, out.String(), problems.String())
	}
	return out.String()
}

// screen is what the user of a terminal sees.
type screen struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String is what is on it; nothing, where there is none.
func (s *screen) String() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

var smallCell = []string{"up", "--model", "tiny", "--workers", "1x1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}

// up starts a cell, with flags before the command, and returns when it is ready.
func (s *shell) up(globals ...string) (*exec.Cmd, *screen) {
	s.t.Helper()
	seen := new(screen)
	command := s.command(append(globals, smallCell...)...)
	command.Stdout, command.Stderr = seen, seen
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.until("the cell is ready", func() bool { return strings.Contains(seen.String(), "stop    Ctrl-C") }, seen)
	return command, seen
}

func (s *shell) until(what string, is func() bool, seen *screen) {
	s.t.Helper()
	until.Well(s.t, what, func() string {
		if is() {
			return ""
		}
		return "this was seen:\n" + seen.String()
	})
}

func (s *shell) record() *cell.Record {
	s.t.Helper()
	r, err := cell.ReadRecord(s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// The main promise, shown with real processes: what prefill and decode workers
// of different cuts answer together is what one engine answers alone.
func TestDemo(t *testing.T) {
	s := newShell(t)
	out := s.typed(exitOK, "", "--log-format", "json", "up", "--demo", "--model", "tiny", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; !regexp.MustCompile(`^parity: equal \(40 prompts, \d{4,} tokens\)$`).MatchString(last) {
		t.Errorf("the demo ends with %q:\n%s", last, out)
	}
	for _, phase := range []string{"queue", "prefill", "hand-off", "TTFT", "TTFVT", "TTOT", "think ITL", "answer ITL"} {
		if !regexp.MustCompile(`(?m)^ *` + phase + ` +[0-9.]+ +[0-9.]+ +[0-9.]+ +[1-9]`).MatchString(out) {
			t.Errorf("no latency of %s in\n%s", phase, out)
		}
	}
	if _, err := cell.ReadRecord(s.state); err == nil {
		t.Error("the cell is still there")
	}
	s.checkLogs()
}

// checkLogs demands that all logs are of JSON, and that a request which was handed over
// is found in those of every process that had a part in it, by the beginning of its id.
func (s *shell) checkLogs() {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.state, "logs", "*.log"))
	if err != nil || len(paths) == 0 {
		s.t.Fatal(paths, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var event struct{ Time, Level, Msg string }
			if err := json.Unmarshal([]byte(line), &event); err != nil || event.Time == "" || event.Level == "" || event.Msg == "" {
				s.t.Errorf("%s: %s is no event: %v", path, line, err)
			}
		}
	}
	records, _, err := ledger.LatestIn(s.state, 100)
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(records, func(r *ledger.Record) bool { return len(r.Transfers()) > 0 })
	if i < 0 {
		s.t.Fatal("nothing was handed over")
	}
	parts := make(map[string]bool)
	for line := range strings.Lines(s.typed(exitOK, "", "logs", "--json", "--request", records[i].ID[:12])) {
		var l struct {
			Part  string
			Event struct{ Request string }
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Event.Request != records[i].ID {
			s.t.Errorf("%s: %v", line, err)
		}
		parts[strings.TrimRight(l.Part, "-0123456789")] = true
	}
	for _, part := range []string{"gateway", "prefill", "decode", "agent-prefill", "agent-decode"} {
		if !parts[part] {
			s.t.Errorf("request %s is not in the log of %s", records[i].ID, part)
		}
	}
}

func TestCellLivesAndIsLookedAt(t *testing.T) {
	s := newShell(t)
	up, _ := s.up()
	var status cell.Status
	if err := json.Unmarshal([]byte(s.typed(exitOK, "", "status", "--json")), &status); err != nil || !status.AllUp || len(status.Parts) != 6 {
		t.Errorf("%+v, %v", status, err)
	}
	if out := s.typed(exitOK, "", "status"); !regexp.MustCompile(`(?m)^decode-0 +\d+ +ready`).MatchString(out) {
		t.Error(out)
	}
	if out := s.typed(exitOK, "Hello\n", "chat", "--max-tokens", "60"); len(strings.TrimSpace(out)) == 0 {
		t.Error("nothing was said")
	}
	if out := s.typed(exitOK, "", "logs", "gateway"); !strings.Contains(out, "gateway ready at http://") {
		t.Error(out)
	}
	s.typed(exitFailure, "", smallCell...) // one cell to a state directory
	dead := s.record().Part("decode-0").Process
	if err := syscall.Kill(dead.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until("decode-0 is back", func() bool {
		r := s.record().Part("decode-0")
		return r.State == cell.Ready && r.Restarts > 0
	}, nil)
	s.until("it answers again", func() bool {
		command := s.command("chat", "--max-tokens", "60")
		command.Stdin = strings.NewReader("Hello again\n")
		out, err := command.Output()
		return err == nil && len(out) > 1
	}, nil)
	if err := up.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	s.typed(exitFailure, "", "status")
}

func TestCellAfterAKill(t *testing.T) {
	s := newShell(t)
	up, _ := s.up()
	before := s.record()
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.Wait() // it was killed
	up, _ = s.up()
	// Names of the dead are theirs until leases end; a new start does not wait for that.
	if out := s.typed(exitOK, "", "logs"); strings.Contains(out, "waiting for its lease") {
		t.Errorf("a start after a kill waited for leases:\n%s", out)
	}
	for _, p := range before.Parts {
		if p.Process.Alive() {
			t.Errorf("%s of the killed cell still runs", p.Name)
		}
	}
	reaped := make(chan error, 1)
	go func() { reaped <- up.Wait() }()
	if out := s.typed(exitOK, "", "down"); !strings.Contains(out, "stopped the cell") {
		t.Error(out)
	}
	if err := <-reaped; err != nil {
		t.Errorf("after down: %v", err)
	}
}

// Workers that neither get ready nor leave are not waited for by who is in a
// hurry.
func TestSecondInterruptKillsAStart(t *testing.T) {
	s := newShell(t)
	environment := t.TempDir()
	if err := os.Mkdir(filepath.Join(environment, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"vllm": "", "python": `case "$*" in *serve*) trap "" TERM; while :; do sleep 1; done;; esac
echo '{"vllm": true, "version": "0.32.0", "connector": true}'`,
	} {
		if err := os.WriteFile(filepath.Join(environment, "bin", name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	seen := new(screen)
	up := s.command("up", "--engine", "vllm", "--venv", environment, "--model", "some/model", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	up.Stdout, up.Stderr = seen, seen
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	interruptOnce := func(state cell.State) {
		s.until(string(state), func() bool {
			r, err := cell.ReadRecord(s.state)
			return err == nil && r.Part("decode-0") != nil && r.Part("decode-0").State == state
		}, seen)
		if err := up.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	interruptOnce(cell.Starting)
	interruptOnce(cell.Stopping)
	killed := time.Now() // a worker that does not leave is waited for 15 seconds, else
	_ = up.Wait()        // the status is looked at
	if took := time.Since(killed); up.ProcessState.ExitCode() != exitFailure || took > 14*time.Second {
		t.Errorf("%v after %v:\n%s", up.ProcessState, took, seen)
	}
}

// What `up` prints works as it stands: with a certificate of a private CA,
// which is not for the address, and a key that is in a file only.
func TestCellWithCertificateAndKey(t *testing.T) {
	bash := require.Program(t, "bash")
	s := newShell(t)
	authority := &shell{t: t, program: s.program, state: filepath.Join(t.TempDir(), "authority")}
	authority.typed(exitOK, "", "cert", "init")
	authority.typed(exitOK, "", "cert", "issue", "door", "--host", "gateway.test")
	dir := t.TempDir()
	settings, keys := filepath.Join(dir, "meridian.toml"), filepath.Join(dir, "the keys")
	files := map[string]string{
		keys:                       "# of Ada\n\nk-1\nk-2\n",
		settings:                   fmt.Sprintf("[gateway]\ntls_cert = %[1]q\ntls_key = %[2]q\napi_key_file = %[3]q\n", authority.state+"/tls/agent-door.crt", authority.state+"/tls/agent-door.key", keys),
		filepath.Join(dir, "curl"): "#!/bin/sh\nprintf '%s\\n' \"$@\"\n",
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	up, seen := s.up("--config", settings)
	if out := s.typed(exitOK, "Hello\n", "--config", settings, "chat", "--max-tokens", "60"); len(strings.TrimSpace(out)) == 0 {
		t.Error("nothing was said")
	}
	printed := regexp.MustCompile(`(?s)try     (curl .*)\n  chat    (.*?)\n`).FindStringSubmatch(seen.String())
	if printed == nil || !strings.Contains(printed[2], " --config "+settings+" chat --state ") {
		t.Fatal(seen.String())
	}
	curl := exec.Command(bash, "-c", printed[1])
	curl.Env = append(plainEnvironment(), "PATH="+dir+":"+os.Getenv("PATH"))
	args, err := curl.Output()
	if err != nil {
		t.Fatal(err)
	}
	response := asCurl(t, strings.Split(string(args), "\n"))
	if placed := response.Header.Get("X-Meridian-Placement"); response.StatusCode != http.StatusOK || !strings.HasPrefix(placed, "prefill=prefill-0 ") {
		t.Errorf("%s, placed %q:\n%s", response.Status, placed, args)
	}
	if answer, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(answer), "[DONE]") {
		t.Errorf("%s, %v", answer, err)
	}
	if err := up.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, seen)
	}
}

// asCurl makes the request that curl would make with such arguments.
func asCurl(t *testing.T, args []string) *http.Response {
	t.Helper()
	roots, dialer := x509.NewCertPool(), new(net.Dialer)
	request := &http.Request{Method: http.MethodPost, Header: make(http.Header)}
	var address string
	for len(args) > 1 {
		value := args[1]
		var err error
		switch args[0] {
		case "--cacert":
			var text []byte
			if text, err = os.ReadFile(value); !roots.AppendCertsFromPEM(text) {
				t.Fatalf("no certificates in %s: %v", value, err)
			}
		case "--connect-to":
			address = strings.TrimPrefix(value, "::")
		case "-H":
			name, content, _ := strings.Cut(value, ": ")
			request.Header.Set(name, content)
		case "-d":
			request.Body = io.NopCloser(strings.NewReader(value))
		default: // -iN, or the URL
			if request.URL, err = url.Parse(args[0]); err != nil {
				t.Fatal(err)
			}
			args = args[1:]
			continue
		}
		args = args[2:]
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}
