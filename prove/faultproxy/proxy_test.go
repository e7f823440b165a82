package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a dialer, a proxy and a target, with one connection through.
type stage struct {
	t        *testing.T
	proxy    *Proxy
	listener *net.TCPListener
	near     *net.TCPConn
	far      *net.TCPConn
}

func setStage(t *testing.T) *stage {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, listener: listener}
	if s.proxy, err = Open(t.Context(), Options{Target: listener.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		listener.Close()
		if err := errors.Join(s.proxy.Close(), s.proxy.Close()); err != nil {
			t.Error(err)
		}
	})
	s.near, s.far = s.connect()
	return s
}

// connect makes one more connection and gives both of its ends.
func (s *stage) connect() (near, far *net.TCPConn) {
	s.t.Helper()
	near = s.dial()
	_ = s.listener.SetDeadline(time.Now().Add(time.Minute))
	far, err := s.listener.AcceptTCP()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { far.Close() })
	_ = far.SetDeadline(time.Now().Add(time.Minute))
	return near, far
}

func (s *stage) dial() *net.TCPConn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.proxy.Address())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn.(*net.TCPConn)
}

func (s *stage) send(to *net.TCPConn, b []byte) {
	s.t.Helper()
	if _, err := to.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) expect(from *net.TCPConn, want []byte) {
	s.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(from, got); err != nil || !bytes.Equal(got, want) {
		s.t.Fatalf("%d of %d bytes came, the right ones: %v, %v", n, len(want), bytes.Equal(got, want), err)
	}
}

// expectSilence demands that nothing comes for a while, not even an end.
func (s *stage) expectSilence(from *net.TCPConn) {
	s.t.Helper()
	_ = from.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var timeout net.Error
	if n, err := from.Read(make([]byte, 1)); n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		s.t.Fatalf("heard %d bytes, %v", n, err)
	}
	_ = from.SetReadDeadline(time.Now().Add(time.Minute))
}

func noise(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{7})
	_, _ = source.Read(b)
	return b
}

func TestCarriesBothWaysAndEnds(t *testing.T) {
	s := setStage(t)
	b := noise(1 << 20)
	go s.near.Write(b) //nolint:errcheck // expect sees what came
	s.expect(s.far, b)
	s.send(s.far, b[:100])
	s.expect(s.near, b[:100])
	if f, k := s.proxy.Passed(Forward), s.proxy.Passed(Back); f != 1<<20 || k != 100 {
		t.Errorf("passed %d and %d", f, k)
	}
	_ = s.near.CloseWrite()
	if n, err := s.far.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the end came as %d, %v", n, err)
	}
	s.send(s.far, b[:100]) // the other half lives on
	s.expect(s.near, b[:100])
}

func TestDelay(t *testing.T) {
	s := setStage(t)
	s.proxy.Set(Forward, Fault{Delay: 60 * time.Millisecond})
	s.proxy.Set(Back, Fault{Delay: 40 * time.Millisecond})
	start := time.Now()
	s.send(s.near, []byte("there"))
	s.expect(s.far, []byte("there"))
	s.send(s.far, []byte("and back"))
	s.expect(s.near, []byte("and back"))
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("there and back took %v", took)
	}
}

func TestBytesPerSecondIsSharedByAll(t *testing.T) {
	s := setStage(t)
	near, far := s.connect()
	s.proxy.Set(Forward, Fault{BytesPerSecond: 2 << 20})
	start := time.Now()
	go s.near.Write(noise(256 << 10)) //nolint:errcheck // expect sees what came
	go near.Write(noise(256 << 10))   //nolint:errcheck // expect sees what came
	s.expect(s.far, noise(256<<10))
	s.expect(far, noise(256<<10))
	if took := time.Since(start); took < 230*time.Millisecond {
		t.Errorf("half a MiB at 2 MiB/s took %v", took)
	}
	if passed := s.proxy.Passed(Back); passed != 0 {
		t.Errorf("%d bytes came back", passed)
	}
}

func TestFlipChangesOneBit(t *testing.T) {
	s := setStage(t)
	struck := s.proxy.Set(Forward, Fault{Strike: Flip, After: 70_000})
	b := noise(200_000)
	go s.near.Write(bytes.Clone(b)) //nolint:errcheck // expect sees what came
	b[70_000] ^= 1 << 6
	s.expect(s.far, b)
	<-struck
	s.send(s.near, b[:10]) // only once
	s.expect(s.far, b[:10])
}

func TestAfterTellsWithoutAStrike(t *testing.T) {
	s := setStage(t)
	told := s.proxy.Set(Forward, Fault{After: 4})
	s.send(s.near, []byte("abc"))
	s.expect(s.far, []byte("abc"))
	select {
	case <-told:
		t.Fatal("told too early")
	default:
	}
	s.send(s.near, []byte("de"))
	<-told
	s.expect(s.far, []byte("de"))
}

func TestTruncate(t *testing.T) {
	s := setStage(t)
	s.proxy.Set(Forward, Fault{Strike: Truncate, After: 1000})
	s.send(s.near, noise(5000))
	got, err := io.ReadAll(s.far)
	if err != nil || !bytes.Equal(got, noise(1000)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := io.ReadAll(s.near); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	near, far := s.connect() // only once
	s.send(near, noise(5000))
	s.expect(far, noise(5000))
}

func TestReset(t *testing.T) {
	s := setStage(t)
	struck := s.proxy.Set(Back, Fault{Strike: Reset})
	s.send(s.far, []byte("x"))
	<-struck
	for _, end := range []*net.TCPConn{s.near, s.far} {
		if _, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v", err)
		}
	}
}

func TestSever(t *testing.T) {
	s := setStage(t)
	s.proxy.Sever()
	for _, end := range []*net.TCPConn{s.near, s.far} {
		if _, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v", err)
		}
	}
	near, far := s.connect()
	s.send(near, []byte("x"))
	s.expect(far, []byte("x"))
}

func TestBlackHole(t *testing.T) {
	s := setStage(t)
	s.proxy.Set(Forward, Fault{Strike: Swallow})
	s.proxy.Set(Back, Fault{Strike: Swallow})
	s.send(s.near, []byte("x"))
	s.send(s.far, []byte("x"))
	s.expectSilence(s.far)
	s.expectSilence(s.near)
	s.near.Close()
	s.expectSilence(s.far) // nor does it learn of the end

	lost := s.dial()
	s.send(lost, []byte("x"))
	s.expectSilence(lost)
	_ = s.listener.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := s.listener.Accept(); err == nil {
		t.Error("a connection came through a black hole")
	}

	s.proxy.Set(Forward, Fault{})
	s.proxy.Set(Back, Fault{})
	near, far := s.connect()
	s.send(near, []byte("again"))
	s.expect(far, []byte("again"))
}

func TestHalfOpen(t *testing.T) {
	s := setStage(t)
	s.proxy.Set(Forward, Fault{Strike: Swallow, After: 3})
	s.send(s.near, []byte("abcdef"))
	s.expect(s.far, []byte("abc"))
	s.expectSilence(s.far)
	s.send(s.far, []byte("I hear nothing"))
	s.expect(s.near, []byte("I hear nothing"))
	s.proxy.Set(Forward, Fault{})
	s.send(s.near, []byte("g"))
	s.expectSilence(s.far) // what has lost a byte never recovers
	s.near.Close()
	for range 3 { // nor does a reset reach the one that goes on talking
		s.send(s.far, []byte("x"))
	}
	s.expectSilence(s.far)
}

func TestStallHoldsAndLetsGo(t *testing.T) {
	s := setStage(t)
	struck := s.proxy.Set(Forward, Fault{Strike: Stall, After: 10})
	b := noise(300_000)
	go func() {
		s.near.Write(b) //nolint:errcheck // expect sees what came
		s.near.CloseWrite()
	}()
	<-struck
	s.expect(s.far, b[:10])
	s.expectSilence(s.far)
	s.proxy.Set(Forward, Fault{})
	s.expect(s.far, b[10:])
	if _, err := s.far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the end came as %v", err)
	}
}

func TestNoServerBehindTheProxy(t *testing.T) {
	s := setStage(t)
	s.listener.Close()
	lone, err := net.Dial("tcp", s.proxy.Address())
	if err == nil { // else the reset was faster
		defer lone.Close()
		_, err = lone.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

func TestAim(t *testing.T) {
	s, other := setStage(t), setStage(t)
	s.proxy.Aim(other.listener.Addr().String())
	near := s.dial()
	far, err := other.listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	s.send(near, []byte("x"))
	s.expect(far, []byte("x"))
}
