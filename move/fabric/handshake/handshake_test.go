package handshake

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKey(t *testing.T) *trust.CellKey {
	t.Helper()
	key, err := trust.OpenCellKey(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return &key
}

var (
	first  = kv.ID{1}
	second = kv.ID{2}
)

// converse runs both sides against each other.
func converse(t *testing.T, dialer, listener Self, c DialRequest, certified string) (hello mrdn.Hello, dialed, heard error) {
	t.Helper()
	near, far := net.Pipe()
	deadline := time.Now().Add(time.Minute)
	_, _ = near.SetDeadline(deadline), far.SetDeadline(deadline)
	done := make(chan struct{})
	go func() {
		defer close(done)
		hello, heard = listener.Hear(far, certified, func(mrdn.Hello) error { return nil })
		if heard != nil {
			far.Close()
		}
	}()
	_, dialed = dialer.Introduce(near, c)
	if dialed != nil {
		near.Close()
	}
	<-done
	near.Close()
	far.Close()
	return hello, dialed, heard
}

func TestIntroductions(t *testing.T) {
	key, other := newKey(t), newKey(t)
	for name, c := range map[string]struct {
		dialerKey, listenerKey *trust.CellKey
		call                   DialRequest
		dialerCertified        string // what the listener knows from TLS
		dialed, heard          error
		says                   string
	}{
		"neither asks":           {},
		"both know the key":      {dialerKey: key, listenerKey: key},
		"another cell":           {dialerKey: other, listenerKey: key, dialed: fabric.ErrUnproven, heard: fabric.ErrUnproven, says: "cell.key"},
		"no key to prove with":   {listenerKey: key, dialed: fabric.ErrUnproven, heard: io.EOF, says: "asks for a proof"},
		"a host without a proof": {dialerKey: key, dialed: fabric.ErrUnproven, says: "does not prove"},
		"certificates suffice":   {dialerKey: key, listenerKey: key, call: DialRequest{Certified: "b"}, dialerCertified: "a"},
		"the host lies":          {call: DialRequest{Certified: "c"}, dialerCertified: "a", dialed: fabric.ErrUnproven, says: "its certificate c"},
		"the dialer lies":        {call: DialRequest{Certified: "b"}, dialerCertified: "x", dialed: fabric.ErrUnproven, heard: fabric.ErrUnproven, says: "its certificate x"},
		"the one expected":       {call: DialRequest{Expect: second}},
		"reborn":                 {call: DialRequest{Expect: kv.ID{7}}, dialed: fabric.ErrStalePeer, heard: fabric.ErrStalePeer, says: second.String()},
	} {
		t.Run(name, func(t *testing.T) {
			c.call.Link, c.call.Streams = kv.ID{5}, 1
			hello, dialed, heard := converse(t,
				Self{Agent: "a", Incarnation: first, Key: c.dialerKey}, Self{Agent: "b", Incarnation: second, Key: c.listenerKey}, c.call, c.dialerCertified)
			if !errors.Is(dialed, c.dialed) || !errors.Is(heard, c.heard) {
				t.Fatalf("dialer: %v\nlistener: %v", dialed, heard)
			}
			if dialed != nil && !strings.Contains(dialed.Error(), c.says) {
				t.Errorf("%q does not say %q", dialed, c.says)
			}
			if dialed == nil && heard == nil && (hello.Agent != "a" || hello.Incarnation != first) {
				t.Errorf("heard %+v", hello)
			}
		})
	}
}

// A conversation that was recorded cannot be led again: the nonces are new.
func TestReplayedProof(t *testing.T) {
	key := newKey(t)
	listener := Self{Agent: "b", Incarnation: second, Key: key}
	hello := mrdn.Hello{MinVersion: 1, MaxVersion: 1, Agent: "a", Incarnation: first, Streams: 1, Nonce: trust.NewNonce()}
	var recorded mrdn.Proof
	for round := range 2 {
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := listener.Hear(far, "", func(mrdn.Hello) error { return nil })
			done <- err
		}()
		_, _ = near.Write(hello.Append(nil))
		body, err := ReadFrame(near, 4096, mrdn.WelcomeFrame)
		if err != nil {
			t.Fatal(err)
		}
		welcome, _ := mrdn.ParseWelcome(body)
		if round == 0 {
			recorded.MAC = trust.Proof(*key, trust.Dialer, transcript(hello, welcome))
		}
		_, _ = near.Write(recorded.Append(nil))
		_, _ = ReadFrame(near, 4096, mrdn.ProofFrame)
		if err := <-done; (err == nil) != (round == 0) {
			t.Errorf("round %d: %v", round, err)
		}
		near.Close()
		far.Close()
	}
}

// pendings keeps a listener whose dialers are served until the test ends.
func keep(t *testing.T, o PendingOptions) (*PendingPeers, *[]error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var refused []error
	o.Self = Self{Agent: "b", Incarnation: second, Key: o.Self.Key}
	o.Judge = func(net.Conn, mrdn.Hello) error { return nil }
	o.Refused = func(_ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, err)
	}
	o.Logger = slog.New(slog.DiscardHandler)
	d := Listen(listener, o)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		d.Wait()
	})
	return d, &refused
}

func TestStrangersAreBounded(t *testing.T) {
	served := make(chan string, 10)
	o := PendingOptions{
		Patience: time.Hour, Strangers: 3,
		Serve: func(_ net.Conn, h mrdn.Hello) error { served <- h.Agent; return nil },
	}
	d, _ := keep(t, o)
	var silent []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", d.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	until.True(t, "the door has them", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.strangers) == len(silent)
	})
	if err := call(t, d); err != nil {
		t.Errorf("a newcomer among silent strangers: %v", err)
	}
	<-served
	closed := func(conn net.Conn) bool {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := conn.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	if !closed(silent[0]) {
		t.Error("the oldest did not make room")
	}
	if err := call(t, d); err != nil {
		t.Errorf("another newcomer: %v", err)
	}
	if who := <-served; who != "a" {
		t.Errorf("served %q", who)
	}
	o.Patience = 300 * time.Millisecond
	brief, _ := keep(t, o)
	conn, err := net.Dial("tcp", brief.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !closed(conn) {
		t.Error("a silent stranger was kept")
	}
}

func call(t *testing.T, d *PendingPeers) error {
	t.Helper()
	conn, err := net.Dial("tcp", d.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = Self{Agent: "a", Incarnation: first}.Introduce(conn, DialRequest{Streams: 1})
	return err
}

func TestFetchNeedsTheKeyToo(t *testing.T) {
	key := newKey(t)
	d, refused := keep(t, PendingOptions{
		Self: Self{Key: key}, Patience: time.Minute, Metadata: func() []byte { return []byte("regions") },
		Serve: func(net.Conn, mrdn.Hello) error { t.Error("a fetch is no link"); return nil },
	})
	fetch := func(key *trust.CellKey) (string, error) {
		conn, err := net.Dial("tcp", d.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := (Self{Agent: "a", Key: key}).Introduce(conn, DialRequest{Streams: 1, Fetch: true}); err != nil {
			return "", err
		}
		blob, err := ReadFrame(conn, 4096, mrdn.BlobFrame)
		return string(blob), err
	}
	if blob, err := fetch(key); err != nil || blob != "regions" {
		t.Errorf("%q, %v", blob, err)
	}
	if blob, err := fetch(newKey(t)); !errors.Is(err, fabric.ErrUnproven) {
		t.Errorf("%q, %v", blob, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d.Wait()
	if len(*refused) != 1 || !errors.Is((*refused)[0], fabric.ErrUnproven) {
		t.Errorf("refused %v", *refused)
	}
}

func FuzzHear(f *testing.F) {
	f.Add(mrdn.Hello{MinVersion: 1, MaxVersion: 1, Agent: "a", Streams: 1}.Append(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = near.Write(said)
			near.Close()
		}()
		go io.Copy(io.Discard, near)
		_, _ = Self{Agent: "b"}.Hear(far, "", func(mrdn.Hello) error { return nil })
		far.Close()
	})
}
