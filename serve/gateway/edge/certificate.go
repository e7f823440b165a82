package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLSFromFiles is TLS with a certificate that may change while it is in use:
// a handshake, not more than one a second, looks at the files. What cannot be
// used is reported, and the one before it stays.
func TLSFromFiles(cert, key string, logger *slog.Logger) (*tls.Config, error) {
	f := &certificateFiles{cert: cert, key: key, logger: logger}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("gateway: certificate: %w", err)
	}
	f.next = time.Now().Add(rereadAfter)
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: f.certificate}, nil
}

const rereadAfter = time.Second

type certificateFiles struct {
	cert, key string
	logger    *slog.Logger

	mu      sync.Mutex // protects what follows
	next    time.Time  // when to look again
	content []byte
	current *tls.Certificate
	failed  string
}

func (f *certificateFiles) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.After(f.next) {
		f.next = now.Add(rereadAfter)
		err := f.read()
		if err != nil && err.Error() != f.failed {
			f.failed = err.Error()
			f.logger.Warn("the gateway's certificate cannot be used; the one before it stays", "error", err)
		}
	}
	return f.current, nil
}

// read takes up the files where they have changed.
func (f *certificateFiles) read() error {
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return err
	}
	content := append(cert[:len(cert):len(cert)], key...)
	if bytes.Equal(content, f.content) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s with %s: %w", f.cert, f.key, err)
	}
	f.current, f.content, f.failed = &pair, content, ""
	return nil
}
