package edge

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"
)

// A client that does not read does not keep others waiting when it makes room.
func TestMakingRoomDoesNotWait(t *testing.T) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	ours, theirs := net.Pipe() // has no buffer: a word that is not read is waited for
	defer theirs.Close()
	conn, client := tls.Server(ours, certificates.TLS), tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	shaken := make(chan error, 1)
	go func() { shaken <- client.HandshakeContext(t.Context()) }()
	if err := errors.Join(conn.HandshakeContext(t.Context()), <-shaken); err != nil {
		t.Fatal(err)
	}
	l := &Listener{most: 1, open: make(map[net.Conn]*list.Element)}
	l.open[conn] = l.idle.PushBack(idleConn{conn: conn})
	began := time.Now()
	if !l.hasRoom() || time.Since(began) > 4*time.Second {
		t.Errorf("it took %v", time.Since(began))
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection that made room: %v", err)
	}
}
