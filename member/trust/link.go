package trust

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// Protocol is what both sides of a link agree on in the handshake (ALPN), so
// that a certificate's owner who speaks something else is not mistaken for an
// agent.
const Protocol = "meridian/1"

// Server is for a listener that agents dial. Each handshake takes what is in
// force then; changing the returned configuration changes nothing.
func (s *Source) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			i, err := s.identity()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, Time: s.options.Now,
				Certificates: []tls.Certificate{i.pair},
				ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: i.roots,
				// Every connection proves its identity anew.
				SessionTicketsDisabled: true,
				VerifyConnection: func(c tls.ConnectionState) error {
					_, err := peerOfLink(c)
					return refusal(c.PeerCertificates, err)
				},
			}, nil
		},
	}
}

// Client is for dialing one agent, wherever it is: the name in its certificate
// counts, not its address. An empty name takes any agent of the cell. The
// configuration may be kept and used again.
func (s *Source) Client(agent string) *tls.Config {
	return s.client([]string{Protocol}, func(c tls.ConnectionState) error {
		name, err := peerOfLink(c)
		if err == nil && agent != "" && name != agent {
			err = because(ErrName, fmt.Sprintf("agent %s answers where %s is expected", name, agent))
		}
		return err
	})
}

// HostClient is for dialing a server that is no agent, such as an etcd, which
// is known by its host: one of these must be in its certificate. Clients that
// negotiate a protocol, as gRPC does, set NextProtos themselves.
func (s *Source) HostClient(hosts ...string) *tls.Config {
	return s.client(nil, func(c tls.ConnectionState) error {
		leaf := c.PeerCertificates[0]
		for _, host := range hosts {
			if leaf.VerifyHostname(host) == nil {
				return nil
			}
		}
		return because(ErrName, fmt.Sprintf("it is for %v, not for %v", hostsIn(leaf), hosts))
	})
}

// client verifies by itself, because the roots that the library would use are
// fixed when a configuration is made.
func (s *Source) client(protocols []string, named func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols, Time: s.options.Now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			i, err := s.identity()
			if err != nil {
				return nil, err
			}
			return &i.pair, nil
		},
		InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection: func(c tls.ConnectionState) error {
			i, err := s.identity()
			if err != nil {
				return err
			}
			err = verifyChain(c.PeerCertificates, i.roots, s.options.Now(), x509.ExtKeyUsageServerAuth)
			if err == nil {
				err = named(c)
			}
			return refusal(c.PeerCertificates, err)
		},
	}
}

func refusal(chain []*x509.Certificate, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: "verify", Err: err, Hint: hints.For(err)}
	if len(chain) > 0 {
		e.Subject = subject(chain[0])
	}
	return e
}

// peerOfLink reads the name of the peer that speaks the protocol of links.
func peerOfLink(c tls.ConnectionState) (string, error) {
	switch {
	case len(c.PeerCertificates) == 0:
		return "", errNoCertificate
	case c.NegotiatedProtocol != Protocol:
		return "", because(ErrProtocol, fmt.Sprintf("%q instead of %s", c.NegotiatedProtocol, Protocol))
	}
	return nameIn(c.PeerCertificates[0])
}

// PeerName is the agent at the other end of a link that was made with Server
// or Client, after its handshake.
func PeerName(c tls.ConnectionState) (string, error) {
	if !c.HandshakeComplete {
		return "", refusal(nil, because(ErrInvalid, "the handshake is not complete"))
	}
	name, err := peerOfLink(c)
	return name, refusal(c.PeerCertificates, err)
}

// Handshake runs the handshake of a link and returns the name of the peer. Its
// errors say what is wrong with whose certificate.
func Handshake(ctx context.Context, conn *tls.Conn) (peer string, err error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return "", Explain(err)
	}
	return PeerName(conn.ConnectionState())
}

// Explain says in this room's words what an error of a TLS connection means.
// Other errors come back as they are. It is for reads as well: a client learns
// that its certificate was refused only when it reads.
func Explain(err error) error {
	var ours *Error
	var unverified *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &ours):
		return err
	case errors.As(err, &unverified):
		return refusal(unverified.UnverifiedCertificates, classify(unverified.Err, time.Now(), x509.ExtKeyUsageClientAuth))
	case errors.As(err, &plain):
		return &Error{Op: "handshake", Err: fmt.Errorf("%w: %w", ErrProtocol, err), Hint: hints.For(ErrProtocol)}
	case errors.As(err, &op) && op.Op == "remote error":
		return &Error{Op: "handshake", Err: fmt.Errorf("%w: %w", ErrRefused, op.Err), Hint: hints.For(ErrRefused)}
	}
	return err
}
