package tcp

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"

	"meridian/move/fabric/link"
)

// socket is what a stream's sender and receiver share.
type socket struct {
	conn    *net.TCPConn
	raw     syscall.RawConn
	tls     *tls.Conn // over sealed; both nil in the clear
	sealed  *sealed
	silence link.KeepAlive
	// spoke: bytes have left since keepAlive looked last.
	spoke atomic.Bool
}

func newSocket(secured net.Conn) (*socket, error) {
	k := &socket{}
	if over, is := secured.(*tls.Conn); is {
		k.tls, k.sealed = over, over.NetConn().(*sealed)
		k.sealed.open = true
		secured = k.sealed.TCPConn
	}
	k.conn = secured.(*net.TCPConn)
	var err error
	if k.raw, err = k.conn.SyscallConn(); err != nil {
		return nil, err
	}
	_ = k.conn.SetNoDelay(true)
	k.silence.Received()
	return k, nil
}
