package trust

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// maxCertificates bounds a file of certificates: chains have a few, bundles of
// roots some hundreds.
const maxCertificates = 1000

// parseCertificates reads every certificate of a PEM file. Text between them
// is passed over, as tools put it there; any other kind of block is refused.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		switch {
		case block == nil && len(found) == 0:
			return nil, because(ErrFile, "there is no PEM certificate in it")
		case block == nil && bytes.Contains(data, []byte("-----BEGIN")):
			return nil, because(ErrFile, fmt.Sprintf("what follows certificate %d is damaged", len(found)))
		case block == nil:
			return found, nil
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			return nil, because(ErrFile, "there is a private key where certificates should be")
		case block.Type != "CERTIFICATE":
			return nil, because(ErrFile, fmt.Sprintf("there is a %.40q where certificates should be", block.Type))
		case len(found) == maxCertificates:
			return nil, because(ErrFile, fmt.Sprintf("there are more than %d certificates", maxCertificates))
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, because(ErrFile, fmt.Sprintf("certificate %d: %v", len(found)+1, err))
		}
		found, data = append(found, c), rest
	}
}

// ReadCertificates reads every certificate of a PEM file.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	data, err := readFile(path, anyMode)
	if err == nil {
		var found []*x509.Certificate
		if found, err = parseCertificates(data); err == nil {
			return found, nil
		}
	}
	return nil, &Error{Op: "read certificates", Subject: path, Err: err}
}

// Description says what a certificate is, for people and programs.
type Description struct {
	Agent       string    `json:"agent,omitempty"`
	Authority   bool      `json:"authority"`
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Hosts       []string  `json:"hosts"`
	Usages      []string  `json:"usages"`
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
	Serial      string    `json:"serial"`
	Fingerprint string    `json:"sha256"`
}

// Describe reads c.
func Describe(c *x509.Certificate) Description {
	fingerprint := sha256.Sum256(c.Raw)
	d := Description{
		Authority: c.IsCA, Subject: c.Subject.String(), Issuer: c.Issuer.String(), Hosts: hostsIn(c), Usages: []string{},
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, Serial: c.SerialNumber.Text(16), Fingerprint: hex.EncodeToString(fingerprint[:]),
	}
	d.Agent, _ = nameIn(c)
	if c.IsCA {
		d.Usages = append(d.Usages, "sign")
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if !c.IsCA && allows(c, usage) {
			d.Usages = append(d.Usages, usageNames[usage])
		}
	}
	return d
}

var usageNames = map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "server", x509.ExtKeyUsageClientAuth: "client"}

// allows follows RFC 5280: a certificate that lists no usage has all.
func allows(c *x509.Certificate, usage x509.ExtKeyUsage) bool {
	for _, listed := range c.ExtKeyUsage {
		if listed == usage || listed == x509.ExtKeyUsageAny {
			return true
		}
	}
	return len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0
}

func hostsIn(c *x509.Certificate) []string {
	hosts := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// Check tells whether an agent could use a certificate at a time: it names one
// agent, is valid, serves both sides of a link and, where roots are given,
// leads to one of them through the others of its file.
func Check(chain []*x509.Certificate, roots []*x509.Certificate, now time.Time) error {
	if len(chain) == 0 {
		return errNoCertificate
	}
	if _, err := nameIn(chain[0]); err != nil {
		return err
	}
	if len(roots) == 0 {
		roots = chain[len(chain)-1:]
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := verifyChain(chain, poolOf(roots), now, usage); err != nil {
			return err
		}
	}
	return nil
}

func poolOf(certificates []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}
