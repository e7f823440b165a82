package node

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/member/directory/etcd/embedded"
	"meridian/serve/door"
)

// slowClientVariable makes this program a client whose memory does not come, at the door that it names.
const slowClientVariable = "MERIDIAN_TEST_SLOW_CLIENT"

const (
	lentLine   = "its memory is lent"
	slowObject = 4 << 20
	slowCopies = 8 // of a connection at a time
	slowLines  = 9 // connections: with eight all of the agent's memory for copies would be taken
)

// A client reads objects into memory whose pages do not come, as much as it can. Another one puts and gets
// as if it were alone; the agent tells of it; and all is well when the process ends.
func TestSlowMemory(t *testing.T) {
	if socket := os.Getenv(slowClientVariable); socket != "" {
		beSlow(t, socket)
		return
	}
	dir := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	directory, err := embedded.Open(ctx, embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close(context.Background()) })
	n, err := OpenAgent(ctx, AgentOptions{
		Name: "a", StateDir: dir, Listen: "127.0.0.1:0", Door: &Door{},
		Store: &Store{Owner: &store.OwnerOptions{Bytes: 64 << 20}, Candidate: true, Prefixes: Prefixes{BlockTokens: 32, FindTimeout: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	client, err := door.OpenStore(ctx, door.StoreOptions{Socket: n.Door.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	value := make([]byte, slowObject)
	until.Well(t, "an object is stored", func() string {
		if err := client.Put(ctx, []byte("big"), value, door.Wish{}); err != nil && !strings.Contains(err.Error(), door.CodeExists) {
			return err.Error()
		}
		return ""
	})

	child := exec.Command(os.Args[0], "-test.run=^TestSlowMemory$", "-test.v")
	child.Env = append(os.Environ(), slowClientVariable+"="+n.Door.Socket())
	said, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	defer kill()
	lines := bufio.NewScanner(said)
	for lent := false; !lent; lent = lines.Text() == lentLine {
		if !lines.Scan() {
			t.Fatal("the slow client has ended")
		}
		if strings.Contains(lines.Text(), "userfaultfd: ") {
			require.Skip(t, "userfaultfd", lines.Text())
		}
	}
	until.True(t, "copies are overdue", func() bool { return n.objects.Metrics().Overdue > 0 })

	quick, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for i := range 8 {
		key := fmt.Appendf(nil, "other %d", i)
		if err := client.Put(quick, key, value[:1<<20], door.Wish{}); err != nil {
			t.Fatal(err)
		}
		if got, err := client.Get(quick, key); err != nil || len(got) != 1<<20 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	kill()
	until.True(t, "nothing is overdue", func() bool { return n.objects.Metrics().Overdue == 0 && n.Door.Metrics().Connections == 1 })
}

// beSlow asks for an object again and again, into pages that userfaultfd holds back.
func beSlow(t *testing.T, socket string) {
	memory, err := unix.Mmap(-1, 0, slowLines*slowCopies*slowObject, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Fatalf("userfaultfd: %v", errno)
	}
	const api, register, missing = 0xc018aa3f, 0xc020aa00, 1
	hello, pages := [4]uint64{0xaa}, [4]uint64{uint64(uintptr(unsafe.Pointer(&memory[0]))), uint64(len(memory)), missing}
	for _, call := range []struct {
		request  uintptr
		argument *[4]uint64
	}{{api, &hello}, {register, &pages}} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, call.request, uintptr(unsafe.Pointer(call.argument))); errno != 0 {
			t.Fatalf("userfaultfd: %v", errno)
		}
	}
	var all sync.WaitGroup
	for i := range slowLines {
		line, err := door.OpenStore(t.Context(), door.StoreOptions{Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		for k := range slowCopies {
			all.Go(func() {
				at := (i*slowCopies + k) * slowObject
				_, err := line.GetInto(t.Context(), []byte("big"), memory[at:at+slowObject])
				t.Logf("%v", err)
			})
		}
	}
	fmt.Println(lentLine)
	all.Wait()
	select {}
}
