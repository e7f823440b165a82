package doorserver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"meridian/internal/until"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
)

// The conversations of testdata/door; its README has the steps.
type script struct {
	About string
	Agent struct {
		RequireLeg      bool `json:"require_leg"`
		RequireCacheLeg bool `json:"require_cache_leg"`
		Store           bool
		Governor        bool
	}
	Steps []json.RawMessage
}

type step struct {
	Connect, Send, Expect, Event, Shut, Close, Fill, Holds, Flip string
	SendHex                                                      string `json:"send_hex"`
	SendZeros                                                    string `json:"send_zeros"`
	ExpectEnd                                                    string `json:"expect_end"`

	Type, Kind, Transfer, Problem, Hex, As string
	Message                                json.RawMessage
	MemFD                                  *memfd `json:"memfd"`
	Save                                   map[string]string
	Accepted                               bool
	Offset, Bytes, Byte                    int
}

type memfd struct {
	Name   string
	Bytes  int
	Sealed *bool
	File   bool
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/door/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s script
			if err := strictly(text, &s); err != nil {
				t.Fatal(err)
			}
			n := newCell(t, "tcp").start("n", func(o *doorserver.Options) {
				o.RequireLeg, o.RequireCacheLeg = s.Agent.RequireLeg, s.Agent.RequireCacheLeg
				if s.Agent.Store {
					o.Cache, o.Offload = newFakeCache(), shortOffload{o.Relay}
					o.CacheTerms = door.CacheTerms{BlockTokens: 64, FindWait: 300 * time.Microsecond}
				}
				if s.Agent.Governor {
					o.Governor = newGovernors(t)
				}
			})
			p := &player{socket: n.socket, conns: make(map[string]*dialogue), memory: make(map[string][]byte), variables: make(map[string][]byte)}
			t.Cleanup(p.end)
			for i, raw := range s.Steps {
				var do step
				if err := strictly(raw, &do); err != nil {
					t.Fatalf("step %d, %s: %v", i, raw, err)
				}
				if err := p.play(do); err != nil {
					t.Fatalf("step %d, %s: %v", i, raw, err)
				}
			}
			p.end()
			until.True(t, "nothing is left", n.empty)
		})
	}
}

func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// player plays one script.
type player struct {
	socket    string
	conns     map[string]*dialogue
	memory    map[string][]byte
	variables map[string][]byte
}

// dialogue is one connection: frames and events that came before the script expects them.
type dialogue struct {
	*door.Conn
	frames []door.Frame
	events []door.Event
}

func (p *player) end() {
	for _, d := range p.conns {
		_ = d.Close()
	}
	for name, m := range p.memory {
		_ = unix.Munmap(m)
		delete(p.memory, name)
	}
}

func (p *player) play(s step) error {
	switch {
	case s.Connect != "":
		socket, err := net.Dial("unix", p.socket)
		if err != nil {
			return err
		}
		if old := p.conns[s.Connect]; old != nil {
			_ = old.Close()
		}
		p.conns[s.Connect] = &dialogue{Conn: door.NewConn(socket.(*net.UnixConn))}
	case s.Send != "":
		return p.send(s)
	case s.SendHex != "":
		wire, err := hex.DecodeString(s.Hex)
		if err != nil {
			return err
		}
		file, err := p.lend(s.MemFD)
		if err != nil {
			return err
		}
		defer file.Close()
		return p.conns[s.SendHex].Write(wire, file)
	case s.SendZeros != "":
		_ = p.conns[s.SendZeros].Write(make([]byte, s.Bytes), nil)
	case s.Expect != "":
		return p.expect(s)
	case s.Event != "":
		return p.event(s)
	case s.ExpectEnd != "":
		return p.conns[s.ExpectEnd].end()
	case s.Shut != "":
		return p.conns[s.Shut].Socket().CloseWrite()
	case s.Close != "":
		return p.conns[s.Close].Close()
	case s.Fill != "":
		copy(p.memory[s.Fill][s.Offset:], bytes.Repeat([]byte{byte(s.Byte)}, s.Bytes))
	case s.Holds != "":
		if got := p.memory[s.Holds][s.Offset : s.Offset+s.Bytes]; !bytes.Equal(got, bytes.Repeat([]byte{byte(s.Byte)}, s.Bytes)) {
			return fmt.Errorf("it holds % x …", got[:16])
		}
	case s.Flip != "":
		flipped := bytes.Clone(p.variables[s.Flip])
		flipped[len(flipped)-1] ^= 1
		p.variables[s.As] = flipped
	default:
		return errors.New("no such step")
	}
	return nil
}

// message reads a message of the script.
func (p *player) message(kind string, text json.RawMessage) (proto.Message, error) {
	name := strings.ToUpper(kind[:1]) + kind[1:]
	known, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("meridian.door.v1." + name))
	if err != nil {
		return nil, err
	}
	filled := string(text)
	for name, value := range p.variables {
		filled = strings.ReplaceAll(filled, `"$`+name+`"`, `"`+base64.StdEncoding.EncodeToString(value)+`"`)
	}
	m := known.New().Interface()
	return m, protojson.Unmarshal([]byte(filled), m)
}

func (p *player) send(s step) error {
	m, err := p.message(s.Type, s.Message)
	if err != nil {
		return err
	}
	file, err := p.lend(s.MemFD)
	if err != nil {
		return err
	}
	defer file.Close()
	return p.conns[s.Send].Send(doorpb.FrameType(doorpb.FrameType_value["FRAME_TYPE_"+strings.ToUpper(s.Type)]), m, file)
}

// lend makes what goes along with a frame, if anything does.
func (p *player) lend(m *memfd) (*os.File, error) {
	if m == nil {
		return nil, nil
	}
	file, err := m.make()
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(int64(m.Bytes)); err != nil {
		return nil, err
	}
	if !m.File && (m.Sealed == nil || *m.Sealed) {
		if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
			return nil, err
		}
	}
	p.memory[m.Name], err = unix.Mmap(int(file.Fd()), 0, m.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return file, err
}

func (m *memfd) make() (*os.File, error) {
	if m.File {
		file, err := os.CreateTemp("", "mrd")
		if err == nil {
			err = os.Remove(file.Name())
		}
		return file, err
	}
	fd, err := unix.MemfdCreate(m.Name, unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	return os.NewFile(uintptr(fd), m.Name), err
}

// hear reads the next frame and sorts it.
func (d *dialogue) hear() error {
	_ = d.Socket().SetReadDeadline(time.Now().Add(time.Minute))
	f, err := d.Read(door.MaxFrameBytes)
	if err != nil {
		return err
	}
	if f.Type != doorpb.FrameType_FRAME_TYPE_EVENT {
		d.frames = append(d.frames, f)
		return nil
	}
	var m doorpb.Event
	if err := f.Unmarshal(&m); err != nil {
		return err
	}
	for i, kind := range m.Kinds {
		e := door.Event{Kind: door.EventKind(kind), Transfer: [16]byte(m.Transfers[16*i:]), Accepted: m.Accepted[i]}
		if code := m.Problems[i].GetCode(); code != "" {
			e.Problem = &door.Problem{Code: code, Message: m.Problems[i].GetMessage()}
		}
		d.events = append(d.events, e)
	}
	return nil
}

func (d *dialogue) end() error {
	for {
		err := d.hear()
		switch {
		case len(d.frames) > 0:
			return fmt.Errorf("%v came", d.frames[0].Type)
		case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
			return nil
		case err != nil:
			return err
		}
	}
}

func (p *player) expect(s step) error {
	d := p.conns[s.Expect]
	for len(d.frames) == 0 {
		if err := d.hear(); err != nil {
			return err
		}
	}
	f := d.frames[0]
	d.frames = d.frames[1:]
	want, err := p.message(s.Type, s.Message)
	if err != nil {
		return err
	}
	if name := strings.ToLower(strings.TrimPrefix(f.Type.String(), "FRAME_TYPE_")); name != s.Type {
		return fmt.Errorf("%s came", name)
	}
	got := want.ProtoReflect().New().Interface()
	if err := f.Unmarshal(got); err != nil {
		return err
	}
	if reply, is := got.(*doorpb.Reply); is && reply.Problem != nil && want.(*doorpb.Reply).Problem == nil {
		return fmt.Errorf("it is refused: %v", reply.Problem)
	}
	if !within(want.ProtoReflect(), got.ProtoReflect()) {
		return fmt.Errorf("%v came", got)
	}
	for field, variable := range s.Save {
		p.variables[variable] = got.ProtoReflect().Get(got.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(field))).Bytes()
	}
	return nil
}

// within reports whether every field that want has is the same in got.
func within(want, got protoreflect.Message) bool {
	same := true
	want.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
			same = value.Equal(got.Get(field))
		case field.IsList():
			same = eachWithin(value.List(), got.Get(field).List())
		default:
			same = got.Has(field) && within(value.Message(), got.Get(field).Message())
		}
		return same
	})
	return same
}

func eachWithin(want, got protoreflect.List) bool {
	for i := range want.Len() {
		if want.Len() != got.Len() || !within(want.Get(i).Message(), got.Get(i).Message()) {
			return false
		}
	}
	return true
}

func (p *player) event(s step) error {
	d := p.conns[s.Event]
	for len(d.events) == 0 {
		if err := d.hear(); err != nil {
			return err
		}
	}
	got := d.events[0]
	d.events = d.events[1:]
	var transfer [16]byte
	id, err := base64.StdEncoding.DecodeString(s.Transfer)
	if err != nil {
		return err
	}
	copy(transfer[:], id)
	code := ""
	if got.Problem != nil {
		code = got.Problem.Code
	}
	if got.Kind.String() != s.Kind || got.Transfer != transfer || got.Accepted != s.Accepted || code != s.Problem {
		return fmt.Errorf("%v of %x (%v) came, with the problem %v", got.Kind, got.Transfer, got.Accepted, got.Problem)
	}
	return nil
}
