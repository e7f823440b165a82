package doorserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/kv"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
)

// startWithCache is an agent whose door reaches a fake cache.
func startWithCache(t *testing.T) (*node, *fakeCache) {
	cache := newFakeCache()
	cache.hold = make(chan struct{})
	return newCell(t, "tcp").start("n", func(o *doorserver.Options) { o.Cache = cache }), cache
}

func openStore(t *testing.T, n *node, tenant string) *door.Store {
	t.Helper()
	s, err := door.OpenStore(soon(t), door.StoreOptions{Socket: n.socket, Tenant: tenant, Software: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 131 >> 3)
	}
	return b
}

// Objects of every size go in and come out, in frames and through memory.
func TestStoreClient(t *testing.T) {
	n, _ := startWithCache(t)
	s, other := openStore(t, n, "t"), openStore(t, n, "u")
	for _, size := range []int{1, 4 << 10, 16<<10 + 1, door.MaxStoreInline, door.MaxStoreInline + 1, 3 << 20} {
		key, value := fmt.Appendf(nil, "object of %d", size), pattern(size)
		if err := s.Put(soon(t), key, value, door.Wish{}); err != nil {
			t.Fatal(err)
		}
		refusedWith(t, s.Put(soon(t), key, value, door.Wish{}), door.CodeExists)
		got, err := s.Get(soon(t), key)
		if err != nil || !bytes.Equal(got, value) {
			t.Errorf("%d bytes: %d came, %v", size, len(got), err)
		}
		into := make([]byte, size)
		if told, err := s.GetInto(soon(t), key, into); err != nil || told != uint64(size) || !bytes.Equal(into, value) {
			t.Errorf("%d bytes into memory: %d, %v", size, told, err)
		}
		if size > 1 {
			told, err := s.GetInto(soon(t), key, into[:size-1])
			if refusedWith(t, err, door.CodeTooSmall); told != uint64(size) {
				t.Errorf("it is told to have %d bytes, and has %d", told, size)
			}
		}
		_, err = other.Get(soon(t), key)
		refusedWith(t, err, door.CodeMissing)
	}
	if present, err := s.Has(soon(t), [][]byte{[]byte("object of 1"), []byte("x")}); err != nil || !present[0] || present[1] {
		t.Errorf("%v, %v", present, err)
	}
	if l, err := s.List(soon(t), door.List{Prefix: []byte("object of 1")}); err != nil || len(l.Objects) != 2 || l.Objects[1].SizeBytes != 16<<10+1 {
		t.Errorf("%+v, %v", l, err)
	}
	if owners, err := s.Stats(soon(t)); err != nil || len(owners) != 1 || owners[0].Ready != 6 || !owners[0].Here {
		t.Errorf("%+v, %v", owners, err)
	}
	if err := s.Remove(soon(t), []byte("object of 1")); err != nil {
		t.Error(err)
	}
	if left, err := s.Evict(soon(t), 0); err != nil || left != 5 {
		t.Errorf("%d left, %v", left, err)
	}
}

// What is written piece by piece is found after its commit, and is forgotten when its
// writer goes.
func TestStoreWriter(t *testing.T) {
	n, cache := startWithCache(t)
	s := openStore(t, n, "t")
	key, value := []byte("key"), pattern(200<<10)
	place, err := s.Open(soon(t), key, uint64(len(value)), door.Wish{})
	if err != nil || place.SizeBytes != uint64(len(value)) || place.Owner != "n" {
		t.Fatalf("%+v, %v", place, err)
	}
	_, err = s.Open(soon(t), key, 1, door.Wish{})
	refusedWith(t, err, door.CodeExists)
	for _, err := range []error{
		s.Write(soon(t), key, 100<<10, value[100<<10:]), s.Write(soon(t), key, 1<<10, value[1<<10:100<<10]), s.Write(soon(t), key, 0, value[:1<<10]),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	refusedWith(t, s.Write(soon(t), key, 1, value), door.CodeSize)
	_, err = s.Locate(soon(t), key, 0)
	refusedWith(t, err, door.CodeNotReady)
	if err := s.Commit(soon(t), key); err != nil {
		t.Error(err)
	}
	if got, err := s.Get(soon(t), key); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	for i := range door.MaxStoreOpen {
		if _, err := s.Open(soon(t), fmt.Append(nil, i), 1, door.Wish{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Open(soon(t), []byte("one more"), 1, door.Wish{})
	refusedWith(t, err, door.CodeBusy)
	if err := s.Abort(soon(t), []byte("0")); err != nil || cache.read(&cache.aborted) != 1 {
		t.Errorf("%v, %d aborted", err, cache.read(&cache.aborted))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := cache.read(&cache.aborted); n != door.MaxStoreOpen {
		t.Errorf("%d were aborted before the connection ended, of %d", n, door.MaxStoreOpen)
	}
}

// The arena comes as a descriptor, beside whatever else is under way.
func TestStoreMap(t *testing.T) {
	n, _ := startWithCache(t)
	s := openStore(t, n, "t")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				arena, err := s.Map(soon(t))
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(io.NewSectionReader(arena.File, 0, 100))
				if arena.File.Close(); err != nil || string(text) != "the arena" {
					t.Errorf("%q, %v", text, err)
				}
				if _, err := s.Has(soon(t), [][]byte{[]byte("x")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// So many requests are under way at a time, and the next is refused; all of them end
// with their connection.
func TestStoreRequestsAreBounded(t *testing.T) {
	n, cache := startWithCache(t)
	wire, _ := greet(t, n, &doorpb.Hello{Features: []string{"store"}, As: &doorpb.Hello_Client{Client: &doorpb.Client{}}})
	for i := range door.MaxStoreRequests + 1 {
		get := &doorpb.Store{Request: uint64(i + 1), DeadlineMs: 60_000, What: &doorpb.Store_Get{Get: &doorpb.StoreGet{Keys: [][]byte{[]byte("slow")}}}}
		if err := wire.Send(doorpb.FrameType_FRAME_TYPE_STORE, get, nil); err != nil {
			t.Fatal(err)
		}
	}
	f, err := wire.Read(door.MaxFrameBytes)
	if err != nil || codeOf(t, f) != door.CodeBusy || f.Request() != door.MaxStoreRequests+1 {
		t.Errorf("%v, request %d", err, f.Request())
	}
	until.True(t, "all are under way", func() bool { return cache.read(&cache.waiting) == door.MaxStoreRequests })
	_ = wire.Socket().CloseWrite()
	for err == nil {
		_, err = wire.Read(door.MaxFrameBytes)
	}
	if left := cache.read(&cache.waiting); !errors.Is(err, io.EOF) || left > 0 {
		t.Errorf("%v; %d requests are under way after the end", err, left)
	}
}

// A deadline ends what waits, and is told.
func TestStoreDeadline(t *testing.T) {
	n, _ := startWithCache(t)
	s := openStore(t, n, "t")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Get(ctx, []byte("slow"))
	refusedWith(t, err, door.CodeDeadline)
	if _, err := s.Has(soon(t), [][]byte{[]byte("x")}); err != nil {
		t.Error("the connection has ended for it: ", err)
	}
}

// Memory that is not there, or not the client's, is refused, and nothing else happens.
func TestStoreMemoryThatIsNotThere(t *testing.T) {
	n, _ := startWithCache(t)
	hole, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(hole)
	wire, _ := greet(t, n, &doorpb.Hello{Features: []string{"store"}, As: &doorpb.Hello_Client{Client: &doorpb.Client{}}})
	for i, c := range []struct {
		address, size uint64
		code          string
	}{
		{addressOf(hole), 1 << 20, door.CodeDenied},
		{0, 4096, door.CodeDenied},
		{1 << 62, 1 << 20, door.CodeDenied},
		{addressOf(hole), 1 << 50, door.CodeTooLarge},
		{1<<64 - 1, 2, door.CodeSize},
	} {
		put := &doorpb.StorePut{Keys: [][]byte{[]byte("k")}, Addresses: []uint64{c.address}, Sizes: []uint64{c.size}}
		if err := wire.Send(doorpb.FrameType_FRAME_TYPE_STORE, &doorpb.Store{Request: uint64(i + 1), What: &doorpb.Store_Put{Put: put}}, nil); err != nil {
			t.Fatal(err)
		}
		f, err := wire.Read(door.MaxFrameBytes)
		if err != nil {
			t.Fatal(err)
		}
		var m doorpb.Reply
		if err := f.Unmarshal(&m); err != nil {
			t.Fatal(err)
		}
		code := m.GetProblem().GetCode()
		if problems := m.GetStore().GetProblems(); len(problems) == 1 {
			code = problems[0].GetCode()
		}
		if code != c.code {
			t.Errorf("%#x, %d bytes: %q, and not %q", c.address, c.size, code, c.code)
		}
	}
}

// Frames of the cache are bounded before they are read, also those of control.
func TestStoreFramesAreBounded(t *testing.T) {
	n, _ := startWithCache(t)
	control, _ := greet(t, n, &doorpb.Hello{Engine: "e", Features: []string{"store"}, As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}})
	large := &doorpb.Store{Request: 1, What: &doorpb.Store_Has{Has: &doorpb.StoreHas{Keys: make([][]byte, door.MaxStoreBytes)}}}
	many := &doorpb.Store{Request: 2, What: &doorpb.Store_Has{Has: &doorpb.StoreHas{Keys: make([][]byte, door.MaxStoreNames+1)}}}
	for i, code := range []string{door.CodeSize, door.CodeTerms} {
		if err := control.Send(doorpb.FrameType_FRAME_TYPE_STORE, []*doorpb.Store{large, many}[i], nil); err != nil {
			t.Fatal(err)
		}
		if f, err := control.Read(door.MaxFrameBytes); err != nil || codeOf(t, f) != code {
			t.Errorf("%v, and not %s", err, code)
		}
	}
	client, _ := greet(t, n, &doorpb.Hello{Features: []string{"store"}, As: &doorpb.Hello_Client{Client: &doorpb.Client{}}})
	_ = client.Send(doorpb.FrameType_FRAME_TYPE_STORE, large, nil)
	if f, err := client.Read(door.MaxFrameBytes); err != nil || codeOf(t, f) != door.CodeMalformed {
		t.Errorf("%v", err)
	}
}

// An agent without a cache says so at once.
func TestStoreWithoutCache(t *testing.T) {
	n := newCell(t, "tcp").start("n")
	if _, err := door.OpenStore(soon(t), door.StoreOptions{Socket: n.socket}); !errors.Is(err, door.ErrNoStore) {
		t.Error(err)
	}
	if _, err := door.OpenStore(soon(t), door.StoreOptions{Socket: n.socket + "x"}); err == nil || !strings.Contains(err.Error(), n.socket) {
		t.Error(err)
	}
}

// The end of a connection says that the client's memory is its own: while a copy runs it
// does not come, whichever side ends it.
func TestStoreConnectionEndsAfterItsCopies(t *testing.T) {
	for name, end := range map[string]func(*node, *door.Conn) error{
		"the client leaves": func(_ *node, wire *door.Conn) error { return wire.Socket().CloseWrite() },
		"nonsense comes":    func(_ *node, wire *door.Conn) error { return wire.Write([]byte{4, 0, 0, 0, 13, 0, 0xff, 0xff}, nil) },
		"the agent stops": func(n *node, _ *door.Conn) error {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			if n.Close(ctx) == nil {
				return errors.New("it has closed")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, cache := startWithCache(t)
			wire, _ := greet(t, n, &doorpb.Hello{Features: []string{"store"}, As: &doorpb.Hello_Client{Client: &doorpb.Client{}}})
			get := &doorpb.Store{Request: 1, What: &doorpb.Store_Get{Get: &doorpb.StoreGet{Keys: [][]byte{[]byte("stuck")}}}}
			if err := wire.Send(doorpb.FrameType_FRAME_TYPE_STORE, get, nil); err != nil {
				t.Fatal(err)
			}
			until.True(t, "it is under way", func() bool { return cache.read(&cache.waiting) == 1 })
			if err := end(n, wire); err != nil {
				t.Fatal(err)
			}
			ended := make(chan int, 1)
			go func() {
				var err error
				for err == nil {
					_, err = wire.Read(door.MaxFrameBytes)
				}
				ended <- cache.read(&cache.waiting)
			}()
			time.AfterFunc(100*time.Millisecond, func() { close(cache.hold) })
			if left := <-ended; left != 0 {
				t.Error("it ended while the copy ran")
			}
		})
	}
}

// What engines keep no client writes, with or without frames; an operator sees and removes it.
func TestStoreOfKeptCaches(t *testing.T) {
	n, cache := startWithCache(t)
	s, key := openStore(t, n, kv.KeptTenants+"0123456789ab"), []byte("kv/unit")
	refusedWith(t, s.Put(soon(t), key, pattern(100), door.Wish{}), door.CodeDenied)
	refusedWith(t, s.Put(soon(t), key, pattern(door.MaxStoreInline+1), door.Wish{}), door.CodeDenied)
	_, err := s.Open(soon(t), key, 100, door.Wish{})
	refusedWith(t, err, door.CodeDenied)
	if err := cache.Put(soon(t), doorserver.Object{Tenant: kv.KeptTenants + "0123456789ab", Key: key}, doorserver.Memory{Bytes: pattern(100)}, door.Wish{}); err != nil {
		t.Fatal(err)
	}
	if l, err := s.List(soon(t), door.List{}); err != nil || len(l.Objects) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if err := s.Remove(soon(t), key); err != nil {
		t.Error(err)
	}
}

// A user who is let in has its tenants' keys, and nothing that is everybody's.
func TestStoreOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Skip(t, "root", "only root can be another user")
	}
	c := newCell(t, "tcp")
	n := c.start("n", func(o *doorserver.Options) { o.Cache, o.AllowUIDs = newFakeCache(), []uint32{12345} })
	if err := os.Chmod(c.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	wire, err := dialAs(12345, n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	hello := &doorpb.Hello{LowVersion: 1, HighVersion: 1, Features: []string{"store"}, As: &doorpb.Hello_Client{Client: &doorpb.Client{}}}
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_HELLO, hello, nil); err != nil {
		t.Fatal(err)
	}
	if f, err := wire.Read(door.MaxFrameBytes); err != nil || f.Type != doorpb.FrameType_FRAME_TYPE_WELCOME {
		t.Fatalf("%v, %v", f.Type, err)
	}
	for name, m := range map[string]*doorpb.Store{
		"evict": {What: &doorpb.Store_Evict{Evict: &doorpb.StoreEvict{}}},
		"list":  {What: &doorpb.Store_List{List: &doorpb.StoreList{AllTenants: true}}},
		"map":   {What: &doorpb.Store_Map{Map: &doorpb.StoreMap{}}},
		"kept":  {Tenant: kv.KeptTenants + "0", What: &doorpb.Store_Get{Get: &doorpb.StoreGet{Keys: [][]byte{{1}}}}},
	} {
		m.Request = 1
		if m.Tenant == "" {
			m.Tenant = "t"
		}
		if err := wire.Send(doorpb.FrameType_FRAME_TYPE_STORE, m, nil); err != nil {
			t.Fatal(err)
		}
		if f, err := wire.Read(door.MaxFrameBytes); err != nil || codeOf(t, f) != door.CodeDenied {
			t.Errorf("%s by another user: %v", name, err)
		}
	}
}
