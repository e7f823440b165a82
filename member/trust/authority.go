package trust

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// How long certificates last unless something else is asked for.
const (
	AuthorityDays = 3650
	IssuedDays    = 365
)

// backdated allows for hosts whose clocks are behind.
const backdated = time.Hour

// Dir is where a state directory keeps certificates.
func Dir(stateDir string) string { return filepath.Join(stateDir, "tls") }

// FilesIn says where in a directory the files of an agent are.
func FilesIn(dir, name string) Files {
	base := filepath.Join(dir, "agent-"+name)
	return Files{CA: filepath.Join(dir, "ca.crt"), Cert: base + ".crt", Key: base + ".key"}
}

// Authority is the small CA of a cell: a key that signs the certificates of
// its agents. Its keys are ECDSA P-256, which every TLS library knows.
//
//	ca.crt          0644  goes to every host
//	ca.key          0600  stays where it was made
//	agent-NAME.crt  0644  go to the host of that agent
//	agent-NAME.key  0600
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// AuthorityOptions configures CreateAuthority.
type AuthorityOptions struct {
	Dir  string
	Days int       // 0: AuthorityDays
	Now  time.Time // zero: time.Now()
}

// CreateAuthority makes a CA in a directory that has none. There is no way to
// replace one: with its key lost, every certificate that it signed would have
// to be issued again at once, on all hosts. To start anew, move the directory
// away.
func CreateAuthority(o AuthorityOptions) (*Authority, error) {
	a, err := createAuthority(o)
	if err != nil {
		return nil, &Error{Op: "create CA in", Subject: o.Dir, Err: err, Hint: authorityHint(o.Dir, err)}
	}
	return a, nil
}

func authorityHint(dir string, err error) string {
	if errors.Is(err, ErrExists) {
		return "a CA is never overwritten: to start anew, mv " + dir + " aside, and issue all certificates again"
	}
	return hints.For(err)
}

func createAuthority(o AuthorityOptions) (*Authority, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	ends, err := endOf(o.Now, o.Days, AuthorityDays)
	if err != nil {
		return nil, err
	}
	if err := makeDir(o.Dir); err != nil {
		return nil, err
	}
	certFile, keyFile := filepath.Join(o.Dir, "ca.crt"), filepath.Join(o.Dir, "ca.key")
	for _, file := range []string{keyFile, certFile} {
		if _, err := os.Lstat(file); err == nil {
			return nil, because(ErrExists, file)
		}
	}
	var tag [4]byte
	rand.Read(tag[:])
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Meridian cell CA " + hex.EncodeToString(tag[:])},
		NotBefore: o.Now.Add(-backdated), NotAfter: ends,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	made, err := newPair(template, nil)
	if err != nil {
		return nil, err
	}
	if err := made.write(Files{Cert: certFile, Key: keyFile}, createFile); err != nil {
		return nil, err
	}
	return OpenAuthority(o.Dir)
}

// OpenAuthority loads the CA of a directory.
func OpenAuthority(dir string) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	fault := func(file string, err error) (*Authority, error) {
		hint := hints.For(err)
		if errors.Is(err, fs.ErrNotExist) {
			hint = "`meridian cert init` makes a CA; its key stays on the host where it was made"
		}
		return nil, &Error{Op: "open CA", Subject: file, Err: err, Hint: hint}
	}
	key, err := readFile(keyFile, ownerOnly)
	if err != nil {
		return fault(keyFile, err)
	}
	cert, err := readFile(certFile, nobodyElse)
	if err != nil {
		return fault(certFile, err)
	}
	own, err := pair{cert, key}.parse()
	if err != nil {
		return fault(certFile, err)
	}
	signer, signs := own.PrivateKey.(crypto.Signer)
	if !signs || !own.Leaf.IsCA {
		return fault(certFile, because(ErrUsage, "it is no CA"))
	}
	return &Authority{dir: dir, cert: own.Leaf, key: signer}, nil
}

// Certificate is the CA's own.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }
