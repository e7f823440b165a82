package doorserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/move/mem"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// puppetVariable makes this test binary an engine in a process of its own, which
// does what it is told line by line and can be killed.
const puppetVariable = "MERIDIAN_DOOR_PUPPET"

// puppetSteps keeps the connection referenced: the collector closes one that is not.
var puppetSteps *door.Conn

type puppetOptions struct {
	Socket, Engine         string
	TP, PP, Block, Blocks  int
	Layout                 string
	Borrowed, LeavesAChild bool
	VRAM                   bool // the first GPU's, through CUDA's driver
	Steps                  bool // it tells of its steps, too
	OnlyRank               int  // if not 0: this rank, and no control
}

type order struct {
	Do             string
	ID, Ticket     []byte
	Tokens, Layers int
}

type report struct {
	Error        string
	ID, Ticket   []byte
	Wrong, Child int
}

// puppet is the other process.
func puppet(text string) {
	var o puppetOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	e, child, err := o.open()
	say(report{Child: child}, err)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var do order
		if err := json.Unmarshal(lines.Bytes(), &do); err != nil {
			panic(err)
		}
		say(e.obey(do))
	}
	os.Exit(0)
}

func say(r report, err error) {
	if err != nil {
		r.Error = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

func (o puppetOptions) open() (*engine, int, error) {
	e, err := newEngine(o.Engine, cut{o.TP, o.PP, o.Block, o.Blocks, o.Layout}.publication())
	if err != nil {
		return nil, 0, err
	}
	if o.Borrowed {
		for i := range e.sections {
			pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
			if err != nil {
				return nil, 0, err
			}
			size := e.sections[i].Size()
			if e.memory[i], err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
				return nil, 0, err
			}
			address := addressOf(e.memory[i])
			if e.sections[i], err = mem.Borrow(mem.BorrowOptions{PIDFD: pidfd, PID: os.Getpid(), Address: address, SizeBytes: size}); err != nil {
				return nil, 0, err
			}
		}
	}
	if o.VRAM {
		if err := e.moveToGPU(); err != nil {
			return nil, 0, err
		}
	}
	options := e.options(o.Socket)
	if o.OnlyRank != 0 {
		options.RanksOnly = true
		for rank := range options.Memory {
			if rank != o.OnlyRank {
				options.Memory[rank] = nil
			}
		}
	}
	if o.Steps {
		socket, err := net.Dial("unix", o.Socket)
		if err != nil {
			return nil, 0, err
		}
		hello := stepsHello(o.Engine, &doorpb.Steps{})
		hello.LowVersion, hello.HighVersion = 1, 1
		puppetSteps = door.NewConn(socket.(*net.UnixConn))
		if err := puppetSteps.Send(doorpb.FrameType_FRAME_TYPE_HELLO, hello, nil); err != nil {
			return nil, 0, err
		}
	}
	if e.Client, err = door.Open(context.Background(), options); err != nil || !o.LeavesAChild {
		return e, 0, err
	}
	// A child that has the connections too keeps them open when this one dies.
	child := exec.Command("sleep", "60")
	for fd := 3; fd < 64; fd++ {
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && kind == unix.AF_UNIX {
			copied, err := unix.Dup(fd)
			if err != nil {
				return nil, 0, err
			}
			child.ExtraFiles = append(child.ExtraFiles, os.NewFile(uintptr(copied), "connection"))
		}
	}
	err = child.Start()
	return e, child.Process.Pid, err
}

func (e *engine) obey(do order) (r report, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tables := [][]uint32{e.blocksFor(do.Tokens)}
	switch do.Do {
	case "offer":
		e.fill(tables[0], do.Tokens)
		if err = e.flush(); err != nil {
			return r, err
		}
		r.Ticket, err = e.Offer(ctx, door.Offer{Transfer: [16]byte(do.ID), Tokens: prompt(do.Tokens), Tables: tables, Layers: do.Layers})
	case "accept":
		var id [16]byte
		id, err = e.Accept(ctx, door.Accept{Ticket: do.Ticket, Tokens: prompt(do.Tokens), Tables: tables})
		r.ID = id[:]
	case "wrong":
		err = e.fetch()
		r.Wrong = e.wrong(tables[0], do.Tokens)
	default:
		err = errors.New("what?")
	}
	return r, err
}

// process is a puppet as its master sees it.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.Writer
	out   *json.Decoder
	child int
}

func (c *cell) process(id string, at *node, shape cut, change ...func(*puppetOptions)) *process {
	c.t.Helper()
	o := puppetOptions{
		Socket: at.socket, Engine: id, TP: shape.tp, PP: shape.pp, Block: shape.blockTokens, Blocks: shape.blocks, Layout: shape.layout,
	}
	for _, f := range change {
		f(&o)
	}
	text, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), puppetVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	p := &process{t: c.t, cmd: cmd, in: in, out: json.NewDecoder(out)}
	c.t.Cleanup(p.kill)
	p.child = p.hears().Child
	return p
}

func (p *process) hears() (r report) {
	p.t.Helper()
	if err := p.out.Decode(&r); err != nil || r.Error != "" {
		p.t.Fatalf("the puppet: %v %s", err, r.Error)
	}
	return r
}

func (p *process) do(o order) report {
	p.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprintf(p.in, "%s\n", text)
	return p.hears()
}

// kill is kill -9, and may be repeated.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		if err := p.cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
			p.t.Error(err)
		}
	}
}
