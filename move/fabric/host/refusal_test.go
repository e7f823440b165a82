package host

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

func TestAnotherMachineIsRefused(t *testing.T) {
	here, there := newAgent(t, "here", 4096, Options{}), newAgent(t, "there", 4096, Options{HostID: "elsewhere"})
	_, err := here.Connect(t.Context(), there.peer())
	if !errors.Is(err, fabric.ErrUnsupported) || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("%v, want %v that names the machine", err, fabric.ErrUnsupported)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	dir := socketDir(t)
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no name":       {Agent: "", Dir: dir, Events: &heard{}},
		"no events":     {Agent: "a", Dir: dir},
		"relative":      {Agent: "a", Dir: "here", Events: &heard{}},
		"too long":      {Agent: "a", Dir: filepath.Join(dir, strings.Repeat("x", 100)), Events: &heard{}},
		"open to all":   {Agent: "a", Dir: open, Events: &heard{}},
		"bad directory": {Agent: "a", Dir: "/dev/null/x", Events: &heard{}},
		"workers":       {Agent: "a", Dir: dir, Events: &heard{}, Workers: maxCopiers + 1},
	} {
		if f, err := Open(t.Context(), o); err == nil {
			t.Errorf("%s: opened", name)
			_ = f.Close(t.Context())
		}
	}
}

func TestOnlyMemoryThatCanBeLent(t *testing.T) {
	a := newAgent(t, "a", 4096, Options{})
	file, err := os.Create(filepath.Join(t.TempDir(), "section"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := mem.OpenFile(file, 4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if err := a.Register(fabric.Region{ID: 2, Section: s}); !errors.Is(err, fabric.ErrUnsupported) {
		t.Errorf("%v, want %v", err, fabric.ErrUnsupported)
	}
}

// stranger speaks to an agent by hand.
type stranger struct {
	*net.UnixConn
	t    *testing.T
	lend mrdn.Lend // what it says of the memory that it lends
}

func newStranger(t *testing.T, a *agent) *stranger {
	t.Helper()
	conn, err := net.Dial("unix", a.options.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	s := &stranger{conn.(*net.UnixConn), t, mrdn.Lend{Region: 1, Epoch: 7, Serial: 1}}
	s.say(mrdn.Hello{MinVersion: 1, MaxVersion: 1, Agent: "stranger " + newID().String(), Streams: 1}.Append(nil))
	if _, err := handshake.ReadFrame(conn, 4096, mrdn.WelcomeFrame); err != nil {
		t.Fatal(err)
	}
	if _, err := handshake.ReadFrame(conn, 4096, mrdn.FlagPageFrame); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stranger) say(frame []byte, fds ...int) {
	s.t.Helper()
	if _, _, err := s.WriteMsgUnix(frame, unix.UnixRights(fds...), nil); err != nil {
		s.t.Fatal(err)
	}
}

// memfd makes memory to lend, sealed or not.
func memfd(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("stranger", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

const fixedSize = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// write says all that a write of 100 bytes takes. On its page one flag flies:
// turn 9, in cell 3.
func (s *stranger) write(lent int, source mrdn.Source) mrdn.Ack {
	s.t.Helper()
	page := memfd(s.t, 8*1024, fixedSize)
	if _, err := unix.Pwrite(page, []byte{9}, 3*8); err != nil {
		s.t.Fatal(err)
	}
	s.say(mrdn.FlagPage{Copiers: 1}.Append(nil), page)
	s.say(s.lend.Append(nil), lent)
	source.Handle, source.List = 4, dense(100, 7).AppendTo(nil)
	s.say(mrdn.Begin{Handle: 4, ID: kv.ID{1}, Write: true, Parts: 1, Bytes: 100, List: dense(100, 7).AppendTo(nil)}.Append(nil))
	s.say(source.Append(nil))
	body, err := handshake.ReadFrame(s, 4096, mrdn.AckFrame)
	if err != nil {
		s.t.Fatal(err)
	}
	ack, err := mrdn.ParseAck(body)
	if err != nil {
		s.t.Fatal(err)
	}
	return ack
}

func (s *stranger) cutOff(why string) {
	s.t.Helper()
	if _, err := io.Copy(io.Discard, s); err != nil && !errors.Is(err, unix.ECONNRESET) {
		s.t.Errorf("%s: %v", why, err)
	}
}

// Memory that could shrink under a mapping is not mapped, and what rests on it
// is refused; so is a write whose flag cannot be, or does not fly.
func TestWritesFromBadSources(t *testing.T) {
	a := newAgent(t, "a", 4096, Options{})
	for name, c := range map[string]struct {
		seals  int
		source mrdn.Source
		want   mrdn.Code
	}{
		"as it should be":        {fixedSize, mrdn.Source{Cell: 3, Turn: 9}, mrdn.OK},
		"unsealed":               {0, mrdn.Source{Cell: 3, Turn: 9}, mrdn.CodeRefused},
		"may grow":               {unix.F_SEAL_SHRINK, mrdn.Source{Cell: 3, Turn: 9}, mrdn.CodeRefused},
		"a flag off the page":    {fixedSize, mrdn.Source{Cell: 1 << 30, Turn: 9}, mrdn.CodeRefused},
		"no flag":                {fixedSize, mrdn.Source{Cell: 3}, mrdn.CodeRefused},
		"a flag that is down":    {fixedSize, mrdn.Source{Cell: 4, Turn: 9}, mrdn.CodeCancelled},
		"a flag of another turn": {fixedSize, mrdn.Source{Cell: 3, Turn: 8}, mrdn.CodeCancelled},
	} {
		lent := memfd(t, 4096, c.seals)
		if _, err := unix.Pwrite(lent, []byte(name), 0); err != nil {
			t.Fatal(err)
		}
		clear(a.memory.Bytes(0, 4096))
		if ack := newStranger(t, a).write(lent, c.source); ack.Code != c.want {
			t.Errorf("%s: %v %s, want %v", name, ack.Code, ack.Message, c.want)
		}
		if placed := string(a.memory.Bytes(0, uint64(len(name)))) == name; placed != (c.want == mrdn.OK) {
			t.Errorf("%s: bytes were placed: %v", name, placed)
		}
	}
}

func TestStrangersAreCutOff(t *testing.T) {
	a := newAgent(t, "a", 4096, Options{})
	unsealed := memfd(t, 4096, 0)
	for why, speak := range map[string]func(*stranger){
		"no descriptor":    func(s *stranger) { s.say(mrdn.FlagPage{Copiers: 1}.Append(nil)) },
		"an unsealed page": func(s *stranger) { s.say(mrdn.FlagPage{Copiers: 1}.Append(nil), unsealed) },
		"too many copiers": func(s *stranger) { s.say(mrdn.FlagPage{Copiers: 1 << 20}.Append(nil), memfd(t, 4096, fixedSize)) },
		"a source that is too short": func(s *stranger) {
			s.say(mrdn.Begin{Handle: 4, ID: kv.ID{1}, Write: true, Parts: 1, Bytes: 100, List: dense(100, 7).AppendTo(nil)}.Append(nil))
			s.say(mrdn.Source{Handle: 4, Turn: 1, List: dense(99, 7).AppendTo(nil)}.Append(nil))
		},
		"a frame of servers": func(s *stranger) { s.say(mrdn.Ack{}.Append(nil)) },
		"noise":              func(s *stranger) { s.say([]byte("GET / HTTP/1.1\r\n\r\n")) },
	} {
		s := newStranger(t, a)
		speak(s)
		s.cutOff(why)
	}
}

// A peer that cuts a read into more parts than transfers may run does not take
// every flag there is.
func TestManyPartsOfARead(t *testing.T) {
	const most = 4
	a := newAgent(t, "a", 4096, Options{MaxTransfers: most})
	s := newStranger(t, a)
	for part := range uint16(most + 1) {
		s.say(mrdn.Begin{Handle: uint32(part), ID: kv.ID{1}, Part: part, Parts: 9, Bytes: 100, List: dense(100, 7).AppendTo(nil)}.Append(nil))
	}
	if _, err := handshake.ReadFrame(s, 4096, mrdn.LendFrame); err != nil {
		t.Fatal(err)
	}
	for range most {
		if _, err := handshake.ReadFrame(s, 4096, mrdn.SourceFrame); err != nil {
			t.Fatal(err)
		}
	}
	body, err := handshake.ReadFrame(s, 4096, mrdn.AckFrame)
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := mrdn.ParseAck(body); err != nil || ack.Code != mrdn.CodeBusy {
		t.Errorf("%+v, %v", ack, err)
	}
	flying := 0
	for i := a.page.copiers; i < len(a.page.cells); i++ {
		if a.page.cells[i].Load() != 0 {
			flying++
		}
	}
	if flying != 0 {
		t.Errorf("%d flags fly after the refusal", flying)
	}
}
