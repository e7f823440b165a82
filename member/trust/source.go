package trust

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Files are what an agent needs for TLS, all in PEM. Certificates may come from
// any CA; what they must be is in docs/security-setup.md.
type Files struct {
	CA   string // who is trusted: one certificate or several
	Cert string // the agent's own, followed by intermediates if there are any
	Key  string // its private key, which others than its group cannot read
}

// Options configures Open.
type Options struct {
	Files
	// Name is the agent whose certificate it must be; "" takes any.
	Name string
	// OnReload hears of files that have changed: nil when they are in force
	// now, else why those before them stay. It is called during a handshake.
	OnReload func(error)
	Now      func() time.Time // nil: time.Now
}

// rereadAfter is how long files are taken to be what they were.
const rereadAfter = time.Second

// Source makes TLS configurations of files that may change while they are in
// use. It has no goroutine: the first handshake after the time has come
// looks whether the files have changed.
type Source struct {
	options Options
	opened  time.Time
	current atomic.Pointer[identity]
	next    atomic.Int64 // when to look at the files again, in nanoseconds since opened

	// rereading is held by the one handshake that looks at the files; others
	// go on with what is current. It protects what follows.
	rereading sync.Mutex
	seen      [sha256.Size]byte // digest of the files when they were last read
	failed    string            // what was last reported
}

// Open reads the files and checks that an agent can use them now.
func Open(o Options) (*Source, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnReload == nil {
		o.OnReload = func(error) {}
	}
	s := &Source{options: o, opened: o.Now()}
	content, err := o.Files.read()
	if err != nil {
		return nil, err
	}
	first, err := content.identity(o.Now())
	if err == nil {
		err = first.checkName(o.Name)
	}
	if err != nil {
		return nil, o.Files.fault(err)
	}
	s.seen = content.digest()
	s.next.Store(int64(rereadAfter))
	s.current.Store(first)
	return s, nil
}

// Name is the agent that the certificate names. It never changes: files that
// name another agent are not taken up.
func (s *Source) Name() string { return s.current.Load().name }

// NotAfter is when the certificate in force ends.
func (s *Source) NotAfter() time.Time { return s.current.Load().leaf.NotAfter }

// identity returns what is in force, after a look at the files if it is time.
func (s *Source) identity() (*identity, error) {
	now := s.options.Now()
	if int64(now.Sub(s.opened)) >= s.next.Load() && s.rereading.TryLock() {
		s.reread(now)
		s.rereading.Unlock()
	}
	i := s.current.Load()
	if now.After(i.leaf.NotAfter) {
		err := because(ErrExpired, fmt.Sprintf("%s ended at %s, it is %s", i.name, stamp(i.leaf.NotAfter), stamp(now)))
		return nil, &Error{Op: "use", Subject: s.options.Cert, Err: err, Hint: hints.For(err)}
	}
	return i, nil
}

// reread compares contents, not times of modification: two writes within one
// tick of the file system's clock would look the same.
func (s *Source) reread(now time.Time) {
	s.next.Store(int64(now.Sub(s.opened) + rereadAfter))
	content, err := s.options.read()
	if err != nil {
		s.seen = [sha256.Size]byte{} // whatever comes back is looked at
		s.report(err)
		return
	}
	digest := content.digest()
	if digest == s.seen {
		return
	}
	s.seen = digest
	fresh, err := content.identity(now)
	if err == nil {
		err = fresh.checkName(s.Name())
	}
	if err != nil {
		s.report(s.options.fault(err))
		return
	}
	s.failed = ""
	s.current.Store(fresh)
	s.options.OnReload(nil)
}

// report says once what stays the same.
func (s *Source) report(err error) {
	if text := err.Error(); text != s.failed {
		s.failed = text
		s.options.OnReload(err)
	}
}

// identity is who this side is and whom it trusts, at one time.
type identity struct {
	name  string
	leaf  *x509.Certificate
	pair  tls.Certificate
	roots *x509.CertPool
}

func (i *identity) checkName(want string) error {
	if want != "" && i.name != want {
		return because(ErrName, fmt.Sprintf("it is of agent %s, this is %s", i.name, want))
	}
	return nil
}

// contents are the bytes of Files.
type contents struct {
	ca []byte
	pair
}

func (f Files) read() (c contents, err error) {
	for _, file := range []struct {
		path string
		into *[]byte
	}{{f.CA, &c.ca}, {f.Cert, &c.cert}, {f.Key, &c.key}} {
		refused := nobodyElse
		if file.path == f.Key {
			refused = groupReads
		}
		if *file.into, err = readFile(file.path, refused); err != nil {
			return c, &Error{Op: "read", Subject: file.path, Err: err, Hint: hints.For(err)}
		}
	}
	return c, nil
}

func (f Files) fault(err error) error {
	return &Error{Op: "use", Subject: f.Cert, Err: err, Hint: hints.For(err)}
}

func (c contents) digest() [sha256.Size]byte {
	h := sha256.New()
	for _, data := range [][]byte{c.ca, c.cert, c.key} {
		sum := sha256.Sum256(data)
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// identity checks what a peer would check, so that a fault is found here.
func (c contents) identity(now time.Time) (*identity, error) {
	roots, err := parseCertificates(c.ca)
	if err != nil {
		return nil, fmt.Errorf("the CA file: %w", err)
	}
	chain, err := parseCertificates(c.cert)
	if err != nil {
		return nil, err
	}
	parsed, err := c.parse()
	if err != nil {
		return nil, err
	}
	if err := Check(chain, roots, now); err != nil {
		return nil, err
	}
	name, err := nameIn(chain[0])
	return &identity{name: name, leaf: chain[0], pair: parsed, roots: poolOf(roots)}, err
}
