package openaiclient

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
)

// ReadCertificate reads the first certificate of a PEM file: the one that a
// server with that file shows.
func ReadCertificate(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		found, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return found, nil
	}
	return nil, fmt.Errorf("there is no certificate in %s; it must have one in PEM", file)
}

// Trusting is for a server that shows this certificate, signed by any authority or
// none, and reached by any name: the operator, who names the file, vouches for it.
func Trusting(certificate *x509.Certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{
		InsecureSkipVerify: true, // of the name; the rest is looked at here
		VerifyConnection: func(s tls.ConnectionState) error {
			if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots}); err != nil {
				return errors.Join(errors.New("the server does not show the certificate that its configuration names"), err)
			}
			return nil
		},
	}
	return &http.Client{Transport: transport}
}
