package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// pair is a certificate and its private key, in PEM.
type pair struct{ cert, key []byte }

// newPair makes a key and a certificate for it, signed by an authority or, if
// that is nil, by itself.
func newPair(template *x509.Certificate, by *Authority) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	if by == nil {
		by = &Authority{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, err
}

// write writes the key first: a certificate without its key would look whole.
// If only the certificate exists already, the key goes again.
func (p pair) write(to Files, write func(string, []byte, fs.FileMode) error) error {
	if err := write(to.Key, p.key, secretMode); err != nil {
		return existing(err)
	}
	err := write(to.Cert, p.cert, publicMode)
	if errors.Is(err, fs.ErrExist) {
		return errors.Join(existing(err), os.Remove(to.Key))
	}
	return err
}

func existing(err error) error {
	if path := new(fs.PathError); errors.Is(err, fs.ErrExist) && errors.As(err, &path) {
		return because(ErrExists, path.Path)
	}
	return err
}

func (p pair) parse() (tls.Certificate, error) {
	parsed, err := tls.X509KeyPair(p.cert, p.key)
	switch {
	case err != nil && bytes.Contains(p.key, []byte("ENCRYPTED")):
		return parsed, because(ErrPair, "the key is encrypted, and an agent cannot ask for its password")
	case err != nil:
		return parsed, fmt.Errorf("%w: %w", ErrPair, err)
	}
	return parsed, nil
}
