package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func examine(t *testing.T, m machine) Report {
	t.Helper()
	r := Examine(t.Context(), m.host())
	requireWellFormed(t, r)
	return r
}

func (r Report) named(t *testing.T, name string) Check {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check is named %q", name)
	}
	return r.Checks[i]
}

// requireWellFormed holds what is promised of every report, whatever the machine.
func requireWellFormed(t *testing.T, r Report) {
	t.Helper()
	if len(r.Checks) != len(examinations) {
		t.Fatalf("%d checks, want all %d", len(r.Checks), len(examinations))
	}
	for _, c := range r.Checks {
		if c.Name == "" || c.Found == "" || !utf8.ValidString(c.Found) {
			t.Errorf("check %q found %q", c.Name, c.Found)
		}
		if len(c.Found) > maxFoundBytes+len("…") {
			t.Errorf("%s: found text of %d bytes", c.Name, len(c.Found))
		}
		if !strings.HasPrefix(c.Enables, "Today: ") && !strings.HasPrefix(c.Enables, "Planned: ") {
			t.Errorf("%s: does not say whether it is for today or planned: %q", c.Name, c.Enables)
		}
		switch c.Status {
		case StatusOK:
			if c.Advice != "" {
				t.Errorf("%s: is ok and still advises %q", c.Name, c.Advice)
			}
		case StatusWarn:
			if !strings.Contains(c.Advice, "\n"+commandIndent) {
				t.Errorf("%s: warns without a command to type: %q", c.Name, c.Advice)
			}
		case StatusAbsent:
		default:
			t.Errorf("%s: has status %q", c.Name, c.Status)
		}
	}
}

func TestStatusesOfWholeMachines(t *testing.T) {
	for _, tc := range []struct {
		name    string
		machine machine
		notOK   map[string]Status
	}{
		{"laptop", laptop(), map[string]Status{
			"tiers": StatusAbsent, "CUDA": StatusAbsent, "RDMA": StatusAbsent, "UCX": StatusAbsent, "NIXL": StatusAbsent,
			"Mooncake": StatusAbsent, "UCX memory hooks": StatusAbsent,
		}},
		{"GPU server", gpuServer(), map[string]Status{
			"locked memory": StatusWarn, "UCX memory hooks": StatusWarn,
		}},
		{"locked-down container", lockedContainer(), map[string]Status{
			"cores": StatusWarn, "memory": StatusWarn, "huge pages": StatusAbsent, "/dev/shm": StatusWarn,
			"open files": StatusWarn, "pidfd": StatusWarn, "ptrace scope": StatusWarn, "PID namespace": StatusWarn,
			"tiers": StatusAbsent, "CUDA": StatusAbsent, "RDMA": StatusAbsent, "UCX": StatusAbsent, "NIXL": StatusAbsent,
			"Mooncake": StatusAbsent, "UCX memory hooks": StatusAbsent,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range examine(t, tc.machine).Checks {
				want := tc.notOK[c.Name]
				if want == "" {
					want = StatusOK
				}
				if c.Status != want {
					t.Errorf("%s is %s, want %s: %s", c.Name, c.Status, want, c.Found)
				}
			}
		})
	}
}

func TestTextOfGPUServerIsGolden(t *testing.T) {
	var got bytes.Buffer
	if err := examine(t, gpuServer()).WriteText(&got); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "gpu-server.txt")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the text differs from %s; after a wanted change run go test ./see/doctor -update\n%s", golden, got.Bytes())
	}
}

func TestGarbageNeverFailsTheReport(t *testing.T) {
	garbage := map[string]string{
		"empty":    "",
		"binary":   "\x00\xff\x1b[2J\xfe:\x80 - \x00",
		"negative": "-1",
		"overflow": "99999999999999999999999999",
		"range":    "0-9223372036854775807",
		"colons":   ":::::\n0::../../../..\n::\n",
		"huge":     strings.Repeat("A", maxFileBytes+1),
		"lists":    strings.Repeat("1,", maxListed+1),
		"path":     "0::" + strings.Repeat("/..a", maxPathBytes),
	}
	// What could be read before says nothing now, and must not pass for fine.
	telling := []string{"cores", "memory", "huge pages", "NUMA nodes", "/dev/shm", "memfd", "pidfd", "ptrace scope"}
	for name, text := range garbage {
		t.Run(name, func(t *testing.T) {
			r := examine(t, gpuServer().garbled(text))
			for _, c := range telling {
				if got := r.named(t, c); got.Status == StatusOK {
					t.Errorf("%s is ok: %s", c, got.Found)
				}
			}
			if err := r.WriteText(&bytes.Buffer{}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("directories", func(t *testing.T) {
		r := examine(t, gpuServer().flattened())
		if got := r.named(t, "memory"); got.Status != StatusWarn || !strings.Contains(got.Found, "/proc/meminfo: not a regular file") {
			t.Errorf("memory is %s: %s", got.Status, got.Found)
		}
	})
	t.Run("nothing at all", func(t *testing.T) {
		r := examine(t, machine{})
		if got := r.named(t, "memory"); got.Status != StatusAbsent || !strings.HasPrefix(got.Found, "/proc/meminfo: ") {
			t.Errorf("memory is %s: %s", got.Status, got.Found)
		}
	})
}

// deniedFS shows all files and opens none.
type deniedFS struct{ fs.StatFS }

func (deniedFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

func TestDeniedFilesAreWarnedOf(t *testing.T) {
	m := gpuServer()
	r := Examine(t.Context(), m.hostOn(deniedFS{m.mapFS()}))
	requireWellFormed(t, r)
	for name, file := range map[string]string{
		"cores": presentCPUs, "memory": memInfoFile, "huge pages": memInfoFile, "NUMA nodes": onlineNodes,
		"/dev/shm": mountInfoFile, "memfd": osRelease, "pidfd": osRelease, "ptrace scope": yamaFile,
	} {
		if c := r.named(t, name); c.Status != StatusWarn || !strings.Contains(c.Found, file+": permission denied") ||
			!strings.Contains(c.Advice, "ls -l "+file) {
			t.Errorf("%s is %s: %s\n%s", name, c.Status, c.Found, c.Advice)
		}
	}
}

func FuzzExamine(f *testing.F) {
	for _, text := range []string{"0-3,8", "max 100000", "always [madvise]", "6.5", "0::/a/b", "size=1k", "include *\n/x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		requireWellFormed(t, Examine(t.Context(), gpuServer().garbled(text).host()))
	})
}

func TestReportAfterCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Examine(ctx, laptop().host())
	requireWellFormed(t, r)
	for _, c := range r.Checks {
		if c.Status != StatusWarn || c.Found != "not examined: context canceled" {
			t.Errorf("%s is %s: %s", c.Name, c.Status, c.Found)
		}
	}
}

// cancellingFS ends the examination when a certain file is opened.
type cancellingFS struct {
	fs.FS
	name   string
	cancel context.CancelFunc
}

func (c cancellingFS) Open(name string) (fs.File, error) {
	if name == c.name {
		c.cancel()
	}
	return c.FS.Open(name)
}

func TestCancelKeepsWhatWasFoundAndDropsWhatWasInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := gpuServer()
	r := Examine(ctx, m.hostOn(cancellingFS{FS: m.mapFS(), name: "opt/mellanox/ucx/lib", cancel: cancel}))
	requireWellFormed(t, r)
	if c := r.named(t, "PID namespace"); strings.HasPrefix(c.Found, "not examined") {
		t.Errorf("PID namespace was examined before the end, yet: %s", c.Found)
	}
	for _, name := range []string{"CUDA", "NIXL"} {
		if c := r.named(t, name); c.Status != StatusWarn || !strings.HasPrefix(c.Found, "not examined") {
			t.Errorf("%s is %s: %s", name, c.Status, c.Found)
		}
	}
}

func TestPipesDoNotBlock(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"proc/meminfo", "etc/ld.so.conf", "pipe"} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := laptop().withEnv(map[string]string{"LD_LIBRARY_PATH": "/pipe", "PATH": "/pipe"})
	done := make(chan Report, 1)
	go func() { done <- Examine(t.Context(), m.hostOn(os.DirFS(root))) }()
	select {
	case r := <-done:
		requireWellFormed(t, r)
		if c := r.named(t, "memory"); !strings.Contains(c.Found, "not a regular file") {
			t.Errorf("memory found %q", c.Found)
		}
	case <-time.After(time.Minute):
		t.Fatal("waits for a writer of a pipe")
	}
}

func TestThisHost(t *testing.T) {
	r := Examine(t.Context(), ThisHost(func(context.Context) ([]Tier, error) { return nil, nil }))
	requireWellFormed(t, r)
	if c := r.named(t, "cores"); c.Status == StatusAbsent {
		t.Errorf("a process that runs has a core: %s", c.Found)
	}
}

func TestJSON(t *testing.T) {
	r := Report{Checks: []Check{
		{Name: "a", Status: StatusOK, Found: "b", Enables: "c"},
		{Name: "d", Status: StatusWarn, Found: "e", Enables: "f", Advice: "g"},
	}}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"checks":[{"name":"a","status":"ok","found":"b","enables":"c"},` +
		`{"name":"d","status":"warn","found":"e","enables":"f","advice":"g"}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTextCannotSteerTheTerminal(t *testing.T) {
	var got bytes.Buffer
	r := examine(t, gpuServer().withEnv(map[string]string{hookMode: "\x1b[2Jbistro\u202e"}))
	if err := r.WriteText(&got); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(got.String(), "\x1b\u202e") || !strings.Contains(got.String(), "?[2Jbistro?") {
		t.Error("the text carries control characters of the environment")
	}
}

func TestTextKeepsWidthAndCommands(t *testing.T) {
	var got bytes.Buffer
	r := examine(t, lockedContainer())
	if err := r.WriteText(&got); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(got.String()) {
		if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > textWidth || strings.HasSuffix(line, " ") {
			t.Errorf("too wide or with a ragged end: %q", line)
		}
	}
	for _, command := range []string{"sysctl -w kernel.yama.ptrace_scope=1\n", "docker run --shm-size=8g …\n"} {
		if !strings.Contains(got.String(), commandIndent+command) {
			t.Errorf("no line with the command %q", command)
		}
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestTextReportsWriteErrors(t *testing.T) {
	if err := (Report{}).WriteText(brokenWriter{}); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}
