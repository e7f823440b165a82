package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// roleVariable makes this binary the other process of a test.
const roleVariable = "HOST_TEST_ROLE"

const processBytes = 64 << 20

// playRole opens an agent whose memory is full of sevens, says who it is, and
// either waits to be read and written, or writes to the peer it is told of, for
// ever.
func playRole() int {
	if err := serveOrWrite(os.Getenv(roleVariable)); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

func serveOrWrite(role string) error {
	ctx := context.Background()
	id := newID()
	events := &heard{notes: make(chan fabric.Notification, 100)}
	f, err := Open(ctx, Options{Agent: "child", Incarnation: id, Dir: os.Getenv("HOST_TEST_DIR"), Events: events})
	if err != nil {
		return err
	}
	memory, err := mem.NewArena(mem.ArenaOptions{Name: "child", SizeBytes: processBytes, NUMANode: -1})
	if err != nil {
		return err
	}
	copy(memory.Bytes(0, processBytes), bytes.Repeat([]byte{7}, processBytes))
	if err := f.Register(fabric.Region{ID: 1, Epoch: 7, Section: memory.Section}); err != nil {
		return err
	}
	fmt.Printf("%s %s\n", id, f.Address())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if role == "serve" {
			continue
		}
		incarnation, address, _ := strings.Cut(in.Text(), " ")
		peer := fabric.Peer{Name: "parent", Address: []byte(address)}
		if peer.Incarnation, err = kv.ParseID(incarnation); err != nil {
			return err
		}
		link, err := f.Connect(ctx, peer)
		if err != nil {
			return err
		}
		prepared, err := link.Prepare(fabric.Write, dense(processBytes, 7), dense(processBytes, 7))
		if err != nil {
			return err
		}
		for {
			t, err := link.Post(ctx, prepared, fabric.PostOptions{ID: newID(), Notify: true})
			if err == nil {
				err = t.Await(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// child starts the other process.
type child struct {
	*exec.Cmd
	peer fabric.Peer
	in   interface{ Write([]byte) (int, error) }
}

func newChild(t *testing.T, role string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0])}
	c.Env = append(os.Environ(), roleVariable+"="+role, "HOST_TEST_DIR="+socketDir(t))
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = in
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the other process said %q: %v", line, err)
	}
	incarnation, address, _ := strings.Cut(strings.TrimSpace(line), " ")
	c.peer = fabric.Peer{Name: "child", Address: []byte(address)}
	if c.peer.Incarnation, err = kv.ParseID(incarnation); err != nil {
		t.Fatal(err)
	}
	return c
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestTwoProcesses(t *testing.T) {
	c := newChild(t, "serve")
	a := newAgent(t, "parent", processBytes, Options{})
	link := a.connect(t, c.peer)
	all := a.memory.Bytes(0, processBytes)
	move := func(op fabric.Op) {
		prepared, err := link.Prepare(op, dense(processBytes, 7), dense(processBytes, 7))
		if err != nil {
			t.Fatal(err)
		}
		defer prepared.Release()
		transfer(t, link, prepared, fabric.PostOptions{ID: newID(), Notify: true})
	}
	move(fabric.Read)
	if got := bytes.Count(all, []byte{7}); got != processBytes {
		t.Errorf("%d of %d bytes were read", got, processBytes)
	}
	for i := range all {
		all[i] = byte(i >> 8)
	}
	sent := bytes.Clone(all)
	move(fabric.Write)
	clear(all)
	move(fabric.Read)
	if !bytes.Equal(all, sent) {
		t.Error("what was written is not what was read back")
	}
}

// Killed within a transfer, the peer is gone; what is ours is quiet and works.
func TestPeerIsKilled(t *testing.T) {
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond} {
			c := newChild(t, "serve")
			a := newAgent(t, "parent", processBytes, Options{})
			link := a.connect(t, c.peer)
			prepared, err := link.Prepare(op, dense(processBytes, 7), dense(processBytes, 7))
			if err != nil {
				t.Fatal(err)
			}
			posted, err := link.Post(context.Background(), prepared, fabric.PostOptions{ID: newID(), Notify: true})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := posted.Await(soon(t)); err != nil && !errors.Is(err, fabric.ErrPeerGone) {
				t.Errorf("%v, killed after %v: %v", op, after, err)
			}
			prepared.Release()
			if err := a.Deregister(soon(t), 1); err != nil {
				t.Error(err)
			}
			if refs := a.memory.References(); refs != 0 {
				t.Errorf("%v, killed after %v: %d references are left", op, after, refs)
			}
		}
	}
}

// Killed while it writes to us, a poster leaves memory that falls quiet.
func TestPosterIsKilled(t *testing.T) {
	a := newAgent(t, "parent", processBytes, Options{})
	for range 5 {
		c := newChild(t, "write")
		fmt.Fprintf(c.in, "%s %s\n", a.options.Incarnation, a.Address())
		<-a.events.notes // it has written once, and goes on
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		until.True(t, "memory is in use no more, since the poster is dead", func() bool { return len(a.everyStream()) == 0 && a.memory.References() == 0 })
		for len(a.events.notes) > 0 {
			<-a.events.notes
		}
		clear(a.memory.Bytes(0, processBytes))
		a.pool.occupy(t)() // a copier that is not quiet yet would write until then
		if got := bytes.Count(a.memory.Bytes(0, processBytes), []byte{7}); got > 0 {
			t.Fatalf("%d bytes came after the poster was dead", got)
		}
	}
}

// A peer that was stopped holds up no caller: Cancel and Deregister return.
func TestPeerIsStopped(t *testing.T) {
	for range 5 {
		c := newChild(t, "serve")
		a := newAgent(t, "parent", processBytes, Options{})
		link := a.connect(t, c.peer)
		prepared, err := link.Prepare(fabric.Write, dense(processBytes, 7), dense(processBytes, 7))
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, link, prepared, fabric.PostOptions{ID: newID()})
		posted, err := link.Post(context.Background(), prepared, fabric.PostOptions{ID: newID()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := posted.Cancel(soon(t)); err != nil {
			t.Error(err)
		}
		if err := a.Deregister(soon(t), 1); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 4*stoppedPeer {
			t.Errorf("a stopped peer held up Cancel and Deregister for %v", took)
		}
		prepared.Release()
	}
}
