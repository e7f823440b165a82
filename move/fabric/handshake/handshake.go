// Package handshake is how two agents introduce themselves on a new connection,
// and the door at which strangers are kept until they have:
//
//	dialer                                 listener
//	Hello: who, to whom, nonce ──────────► judges it
//	       ◄────────── Welcome: who, nonce  or refuses
//	Proof ───────────────────────────────► verifies
//	verifies ◄─────────────────────── Proof
//
// Where the connection has TLS the certificates have proven the names already:
// then no Proof is sent, and a name that is not the certificate's is refused.
// Else each side proves that it knows the cell's key (see trust). Without
// either, an agent believes what it is told; that is for tests, measurements
// and those who asked for it.
package handshake

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// Self is who introduces itself.
type Self struct {
	Agent       string
	Incarnation kv.ID
	// Key is the cell's; nil means that peers are not asked for a proof.
	Key *trust.CellKey
}

// DialRequest is what a dialer wants.
type DialRequest struct {
	// Expect is the incarnation to reach; zero takes any.
	Expect kv.ID
	// Certified is the name in the peer's certificate; empty without TLS.
	Certified       string
	Link            kv.ID
	Stream, Streams uint16
	// Fetch asks for the metadata and nothing else.
	Fetch bool
}

const (
	// maxIntroduction bounds what a stranger can make us buffer.
	maxIntroduction = 4 << 10
	// maxName bounds an agent's name, in bytes.
	maxName = 255
)

// Introduce says who s is and hears who answers. The caller bounds it by a
// deadline on conn.
func (s Self) Introduce(conn net.Conn, c DialRequest) (mrdn.Welcome, error) {
	hello := mrdn.Hello{
		MinVersion: mrdn.LinkVersion, MaxVersion: mrdn.LinkVersion, Agent: s.Agent, Incarnation: s.Incarnation,
		Expect: c.Expect, Link: c.Link, Stream: c.Stream, Streams: c.Streams, Fetch: c.Fetch, Nonce: trust.NewNonce(),
	}
	if _, err := conn.Write(hello.Append(nil)); err != nil {
		return mrdn.Welcome{}, gone(err)
	}
	body, err := ReadFrame(conn, maxIntroduction, mrdn.WelcomeFrame)
	if err != nil {
		return mrdn.Welcome{}, gone(err)
	}
	welcome, err := mrdn.ParseWelcome(body)
	switch {
	case err != nil:
		return welcome, err
	case welcome.Code != mrdn.OK:
		return welcome, fabric.FromCode(welcome.Code, welcome.Message)
	case welcome.Agent == "" || len(welcome.Agent) > maxName:
		return welcome, fmt.Errorf("%w: a welcome that makes no sense", fabric.ErrRefused)
	case c.Expect != (kv.ID{}) && welcome.Incarnation != c.Expect:
		return welcome, fmt.Errorf("%w: expected %s, %s answered", fabric.ErrStalePeer, c.Expect, welcome.Incarnation)
	case c.Certified != "" && welcome.Agent != c.Certified:
		return welcome, fmt.Errorf("%w: it says it is %s, its certificate %s", fabric.ErrUnproven, welcome.Agent, c.Certified)
	case welcome.Prove && s.Key == nil:
		return welcome, fmt.Errorf("%w: %s asks for a proof of the cell's key, and there is none here", fabric.ErrUnproven, welcome.Agent)
	case !welcome.Prove && s.Key != nil && c.Certified == "":
		return welcome, fmt.Errorf("%w: %s does not prove that it belongs to this cell", fabric.ErrUnproven, welcome.Agent)
	case !welcome.Prove:
		return welcome, nil
	}
	return welcome, s.prove(conn, hello, welcome)
}

// prove exchanges proofs, the dialer's first.
func (s Self) prove(conn net.Conn, h mrdn.Hello, w mrdn.Welcome) error {
	said := transcript(h, w)
	if _, err := conn.Write(mrdn.Proof{MAC: trust.Proof(*s.Key, trust.Dialer, said)}.Append(nil)); err != nil {
		return gone(err)
	}
	body, err := ReadFrame(conn, maxIntroduction, mrdn.ProofFrame)
	if err != nil {
		return gone(err)
	}
	proof, err := mrdn.ParseProof(body)
	switch {
	case err != nil:
		return err
	case proof.Code != mrdn.OK:
		return fabric.FromCode(proof.Code, proof.Message)
	}
	if err := trust.Verify(*s.Key, trust.Listener, said, proof.MAC); err != nil {
		return fmt.Errorf("%w: %w", fabric.ErrUnproven, err)
	}
	return nil
}

// Hear listens to a dialer and answers. Judge says what else must be right.
// Certified is the name in the dialer's certificate; empty without TLS.
func (s Self) Hear(conn net.Conn, certified string, judge func(mrdn.Hello) error) (mrdn.Hello, error) {
	body, err := ReadFrame(conn, maxIntroduction, mrdn.HelloFrame)
	if err != nil {
		return mrdn.Hello{}, err
	}
	hello, err := mrdn.ParseHello(body)
	if err != nil {
		return mrdn.Hello{}, err
	}
	if err = s.judge(hello, certified); err == nil {
		err = judge(hello)
	}
	welcome := mrdn.Welcome{
		Version: mrdn.LinkVersion, Capabilities: mrdn.RepeatedSpans, Agent: s.Agent, Incarnation: s.Incarnation, Nonce: trust.NewNonce(),
		Prove: certified == "" && s.Key != nil,
	}
	welcome.Code, welcome.Message = fabric.ToCode(err)
	if _, writeErr := conn.Write(welcome.Append(nil)); err == nil {
		err = writeErr
	}
	if err != nil || !welcome.Prove {
		return hello, err
	}
	return hello, s.demand(conn, hello, welcome)
}

// demand takes the dialer's proof and answers with the listener's.
func (s Self) demand(conn net.Conn, h mrdn.Hello, w mrdn.Welcome) error {
	body, err := ReadFrame(conn, maxIntroduction, mrdn.ProofFrame)
	if err != nil {
		return err
	}
	proof, err := mrdn.ParseProof(body)
	if err != nil {
		return err
	}
	said := transcript(h, w)
	answer := mrdn.Proof{}
	if err = trust.Verify(*s.Key, trust.Dialer, said, proof.MAC); err != nil {
		err = fmt.Errorf("%w: %w", fabric.ErrUnproven, err)
		answer.Code, answer.Message = fabric.ToCode(err)
	} else {
		answer.MAC = trust.Proof(*s.Key, trust.Listener, said)
	}
	_, writeErr := conn.Write(answer.Append(nil))
	return errors.Join(err, writeErr)
}

func transcript(h mrdn.Hello, w mrdn.Welcome) trust.Transcript {
	return trust.Transcript{
		Version: w.Version, Link: h.Link, Stream: h.Stream,
		Dialer:   trust.Party{Name: h.Agent, Incarnation: h.Incarnation, Nonce: h.Nonce},
		Listener: trust.Party{Name: w.Agent, Incarnation: w.Incarnation, Nonce: w.Nonce},
	}
}

// judge is what every dialer must have right.
func (s Self) judge(h mrdn.Hello, certified string) error {
	switch {
	case h.MinVersion > mrdn.LinkVersion || h.MaxVersion < mrdn.LinkVersion:
		return fmt.Errorf("%w: this side speaks %d, the caller %d to %d", fabric.ErrVersion, mrdn.LinkVersion, h.MinVersion, h.MaxVersion)
	case h.Expect != (kv.ID{}) && h.Expect != s.Incarnation:
		return fmt.Errorf("%w: expected %s, this is %s", fabric.ErrStalePeer, h.Expect, s.Incarnation)
	case h.Agent == "" || len(h.Agent) > maxName || h.Streams == 0 || h.Stream >= h.Streams:
		return fmt.Errorf("%w: a hello that makes no sense", fabric.ErrRefused)
	case certified != "" && h.Agent != certified:
		return fmt.Errorf("%w: it says it is %s, its certificate %s", fabric.ErrUnproven, h.Agent, certified)
	}
	return nil
}

func gone(err error) error { return fmt.Errorf("%w: %w", fabric.ErrPeerGone, trust.Explain(err)) }

// ReadFrame reads the frame that must come now. It reads no byte too many,
// because a descriptor may come with the next.
func ReadFrame(conn net.Conn, most uint32, due ...mrdn.LinkFrame) ([]byte, error) {
	var prefix [mrdn.PrefixSize]byte
	if _, err := io.ReadFull(conn, prefix[:]); err != nil {
		return nil, err
	}
	frame, length, err := mrdn.ParsePrefix(prefix[:])
	if err != nil {
		return nil, err
	}
	if !slices.Contains(due, frame) || length > most {
		return nil, fmt.Errorf("%w: type %d of %d bytes where %v was due", mrdn.ErrLinkFrame, frame, length, due)
	}
	body := make([]byte, length)
	if _, err = io.ReadFull(conn, body); err == nil {
		err = mrdn.CheckFrame(prefix[:], body)
	}
	return body, err
}
