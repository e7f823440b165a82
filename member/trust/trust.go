// Package trust answers two questions of a cell: is this peer the agent it
// says it is, and does it belong here.
//
// Between hosts, certificates answer, in TLS 1.3 on both sides. An agent's
// certificate holds its name as the URI meridian://agent/NAME. The side that
// dials says which agent it expects; the side that listens learns which one came:
//
//	source, err := trust.Open(trust.Options{Files: trust.FilesIn(trust.Dir(stateDir), "a"), Name: "a"})
//
//	guest := tls.Server(conn, source.Server())
//	name, err := trust.Handshake(ctx, guest)   // "b": bind everything the guest says to it
//
//	host := tls.Client(conn, source.Client("b"))
//	_, err = trust.Handshake(ctx, host)        // an error unless it is b
//	_, err = host.Read(buffer)                 // what b thinks of us comes with the
//	err = trust.Explain(err)                   // first read: TLS 1.3 has it so
//
// Files are read again when they change, at a handshake and at most once a
// second; connections that are open stay as they are. What cannot be used is
// reported and the files before it stay in force.
//
//	ca.crt ─┐               ┌─ Server()          links between agents,
//	a.crt ──┼─ Open ─ Source┼─ Client(name)      ALPN meridian/1
//	a.key ──┘               └─ HostClient(host)  a directory: etcd, gRPC
//
// An etcd server reads files by itself; it wants
//
//	config.ClientTLSInfo = transport.TLSInfo{
//		CertFile: f.Cert, KeyFile: f.Key, TrustedCAFile: f.CA, ClientCertAuth: true,
//	}
//	config.TlsMinVersion = "TLS1.3" // it overwrites TLSInfo.MinVersion
//
// and certificates issued with the host that clients dial. It reads a new
// certificate and key by itself, a new CA only when it starts.
//
// On one machine, without TLS, a key in the state directory answers. Both sides
// send a nonce, then each proves that it knows the key:
//
//	dialer                                     listener
//	  │ name, incarnation, link, nonce ────────► │
//	  │ ◄──────── name, incarnation, nonce       │
//	  │ Proof(key, Dialer, t) ─────────────────► │ Verify(key, Dialer, t, proof)
//	  │ ◄──────────────── Proof(key, Listener, t)│ only then
//	  │ Verify(key, Listener, t, proof)          │
//
// where t holds everything that was said. The listener proves nothing to a
// stranger, so it cannot be asked to make proofs for others. A proof tells who
// speaks, not what is said afterwards: it does not encrypt, and a relay that can
// change bytes between the two can change them after it. That is why it is for
// loopback and Unix sockets.
package trust

import (
	"errors"
	"fmt"

	"meridian/internal/fault"
)

// What can go wrong. Errors of this room wrap one of these or an error of the
// operating system; those that have a place and advice are an *Error.
var (
	ErrInvalid     = errors.New("invalid argument")
	ErrExists      = errors.New("it exists already")
	ErrFile        = errors.New("the file cannot be used")
	ErrExposed     = errors.New("others can read or change it")
	ErrPair        = errors.New("the certificate and the key are no pair")
	ErrExpired     = errors.New("the certificate has expired")
	ErrNotYetValid = errors.New("the certificate is not valid yet")
	ErrAuthority   = errors.New("no trusted CA has signed the certificate")
	ErrUsage       = errors.New("the certificate is not meant for this use")
	ErrName        = errors.New("the certificate has the wrong name")
	ErrRefused     = errors.New("the peer refused the handshake")
	ErrProtocol    = errors.New("the peer speaks another protocol")
	ErrProof       = errors.New("the proof of the cell key is wrong")
)

// Error says what failed on which file, agent or peer, why, and what to do.
type Error = fault.Error[room]

type room struct{}

func (room) Name() string { return "trust" }

func because(sentinel error, problem string) error { return fmt.Errorf("%w: %s", sentinel, problem) }
