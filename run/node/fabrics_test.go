package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/see/history"
)

const kvBytes = 64 << 10

func newMemory(t *testing.T) *mem.Section {
	t.Helper()
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "kv", SizeBytes: kvBytes, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, arena.Section)
	return arena.Section
}

func newFile(t *testing.T) *mem.Section {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "kv"))
	if err != nil {
		t.Fatal(err)
	}
	section, err := mem.OpenFile(f, kvBytes, 1)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, section)
	return section
}

// newBorrowed is memory of this process, reached as another's would be.
func newBorrowed(t *testing.T) *mem.Section {
	t.Helper()
	lent, err := syscall.Mmap(-1, 0, kvBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	pidfd := -1
	if held := self.WithHandle(func(handle uintptr) { pidfd, err = syscall.Dup(int(handle)) }); held != nil || err != nil {
		t.Fatal(held, err)
	}
	address := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(lent))))
	section, err := mem.Borrow(mem.BorrowOptions{PIDFD: pidfd, PID: os.Getpid(), Address: address, SizeBytes: kvBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(lent) })
	closeAfter(t, section)
	return section
}

func closeAfter(t *testing.T, s *mem.Section) {
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// ship writes memory of near to memory of far and returns what near's admin
// socket tells of it.
func ship(t *testing.T, near, far *Agent, stateDir string, from, to *mem.Section) agent.Record {
	t.Helper()
	contents := make([]byte, kvBytes)
	rand.Read(contents)
	if err := from.WriteAt(contents, 0); err != nil {
		t.Fatal(err)
	}
	here, err := near.Register(from, "")
	if err != nil {
		t.Fatal(err)
	}
	there, err := far.Register(to, "")
	if err != nil {
		t.Fatal(err)
	}
	peer, err := near.LoadMetadata(far.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	local, err := near.Local([]agent.Descriptor{{Address: here.Address, Length: kvBytes, Device: here.Device}})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := peer.Remote([]agent.Descriptor{{Address: there.Address, Length: kvBytes, Device: there.Device}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := near.Prepare(fabric.Write, agent.Side{List: local}, agent.Side{List: remote})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	opened, err := far.Local([]agent.Descriptor{{Address: there.Address, Length: kvBytes, Device: there.Device}})
	if err != nil {
		t.Fatal(err)
	}
	grant, err := far.Grant(agent.GrantOptions{Peer: near.Name(), Op: fabric.Write, Side: agent.Side{List: opened}, For: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	transfer, err := r.Post(t.Context(), agent.PostOptions{Grant: grant})
	if err != nil {
		t.Fatal(err)
	}
	if err := transfer.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrived := make([]byte, kvBytes)
	if err := to.ReadAt(arrived, 0); err != nil || !bytes.Equal(arrived, contents) {
		t.Errorf("not what was sent arrived: %v", err)
	}
	record, err := history.Get[agent.Record](t.Context(), history.AdminSocket(stateDir, near.Name()), "/transfers/"+transfer.ID.String())
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// Agents of one machine meet over host, and over tcp where host cannot be; the
// record says why.
func TestChoiceOfFabric(t *testing.T) {
	for name, c := range map[string]struct {
		near, far AgentOptions
		from, to  func(*testing.T) *mem.Section
		fabric    string
		says      string
	}{
		"one machine":      {fabric: "host", from: newMemory, to: newMemory},
		"not wanted here":  {near: AgentOptions{Fabrics: []string{"tcp"}}, fabric: "tcp", from: newMemory, to: newMemory},
		"not wanted there": {far: AgentOptions{Fabrics: []string{"file", "tcp"}}, fabric: "tcp", from: newMemory, to: newMemory, says: "host: the peer does not have it"},
		"not preferred":    {near: AgentOptions{Fabrics: []string{"tcp", "host"}}, fabric: "tcp", from: newMemory, to: newMemory},
		"another machine":  {far: AgentOptions{machine: "elsewhere"}, fabric: "tcp", from: newMemory, to: newMemory, says: "the peer is on machine elsewhere"},
		"from a file":      {fabric: "tcp", from: newFile, to: newMemory, says: "host: does not reach local memory of kind file"},
		"to a file":        {fabric: "tcp", from: newMemory, to: newFile, says: "host: does not reach remote memory of kind file"},
		"borrowed here":    {fabric: "host", from: newBorrowed, to: newMemory},
		"borrowed there":   {fabric: "host", from: newMemory, to: newBorrowed},
		"borrowed twice":   {fabric: "host", from: newBorrowed, to: newBorrowed},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.near.Name, c.far.Name, c.near.StateDir, c.far.StateDir = "near", "far", dir, dir
			near, far := open(t, c.near), open(t, c.far)
			record := ship(t, near, far, dir, c.from(t), c.to(t))
			if record.Fabric != c.fabric || !strings.Contains(record.String(), c.says) {
				t.Errorf("want %s because %q:\n%s", c.fabric, c.says, record)
			}
		})
	}
}

// An agent reaches its own files without a network.
func TestOwnFiles(t *testing.T) {
	dir := t.TempDir()
	n := open(t, AgentOptions{Name: "a", StateDir: dir})
	if record := ship(t, n, n, dir, newMemory(t), newFile(t)); record.Fabric != "file" {
		t.Errorf("not over file:\n%s", record)
	}
}

// Engines of one agent hand over without a network, wherever their memory is.
func TestOwnMemory(t *testing.T) {
	dir := t.TempDir()
	n := open(t, AgentOptions{Name: "a", StateDir: dir})
	for _, memory := range []func(*testing.T) *mem.Section{newMemory, newBorrowed} {
		record := ship(t, n, n, dir, memory(t), memory(t))
		if record.Fabric != "host" || record.Choices[0].Fabric != "host" {
			t.Errorf("not over host:\n%s", record)
		}
	}
}

func TestFabricsThatMakeNoSense(t *testing.T) {
	for says, fabrics := range map[string][]string{
		`no fabric "warp"; there is host, file, tcp`: {"tcp", "warp"},
		"fabric tcp twice":                           {"tcp", "file", "tcp"},
	} {
		o := AgentOptions{Name: "a", StateDir: t.TempDir(), Listen: "127.0.0.1:0", NoDirectory: true, Fabrics: fabrics}
		if _, err := OpenAgent(t.Context(), o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", fabrics, err)
		}
	}
	// What tcp would listen at matters only to tcp.
	open(t, AgentOptions{Name: "a", StateDir: t.TempDir(), Listen: "nonsense", Fabrics: []string{"host"}})
}

// Where this user can have no directory for sockets, the agent goes without the
// fabric and says so; with nothing else it does not start.
func TestNoPlaceForSockets(t *testing.T) {
	state := t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "host"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(state, "host"), 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", "/nowhere")
	var log bytes.Buffer
	n := open(t, AgentOptions{Name: "a", StateDir: state, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if got := strings.Join(n.Fabrics(), " "); got != "file tcp" {
		t.Errorf("fabrics: %s", got)
	}
	for _, want := range []string{"host fabric is left out", "is open to others (-rwxr-xr-x): chmod 0700 it", "/nowhere/"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	o := AgentOptions{Name: "b", StateDir: state, NoDirectory: true, Fabrics: []string{"host"}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if _, err := OpenAgent(t.Context(), o); err == nil || !strings.Contains(err.Error(), "let tcp be one of them") {
		t.Errorf("%v", err)
	}
}
