package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAuthorityIsNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "tls")
	made, err := CreateAuthority(AuthorityOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]fs.FileMode{"ca.key": 0o600, "ca.crt": 0o644, ".": 0o700} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	_, err = CreateAuthority(AuthorityOptions{Dir: dir})
	judged(t, "CreateAuthority", err, ErrExists, "mv "+dir+" aside")
	again, err := OpenAuthority(dir)
	if err != nil || !again.Certificate().Equal(made.Certificate()) {
		t.Errorf("the CA has changed: %v", err)
	}
	// A host that has only the certificate must not make a CA of another key.
	remove(t, filepath.Join(dir, "ca.key"))
	_, err = CreateAuthority(AuthorityOptions{Dir: dir})
	judged(t, "CreateAuthority", err, ErrExists, "ca.crt")
	_, err = OpenAuthority(dir)
	judged(t, "OpenAuthority", err, fs.ErrNotExist, "stays on the host where it was made")
}

func TestAuthorityRace(t *testing.T) {
	dir := t.TempDir()
	var made atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			switch _, err := CreateAuthority(AuthorityOptions{Dir: dir}); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, ErrExists):
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if _, err := OpenAuthority(dir); err != nil || made.Load() != 1 {
		t.Errorf("%d were made: %v", made.Load(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestAuthorityRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(dir string)
		want  error
	}{
		"exposed key": {func(dir string) { chmod(t, filepath.Join(dir, "ca.key"), 0o640) }, ErrExposed},
		"no CA": {func(dir string) {
			a, _ := OpenAuthority(dir)
			leaf := issued(t, a, Request{Name: "x"})
			write(t, filepath.Join(dir, "ca.crt"), read(t, leaf.Cert))
			write(t, filepath.Join(dir, "ca.key"), read(t, leaf.Key))
		}, ErrUsage},
		"other's key": {func(dir string) {
			write(t, filepath.Join(dir, "ca.key"), read(t, filepath.Join(newAuthority(t).dir, "ca.key")))
		}, ErrPair},
	} {
		dir := newAuthority(t).dir
		c.spoil(dir)
		_, err := OpenAuthority(dir)
		judged(t, name, err, c.want, "")
	}
	for _, days := range []int{-1, maxDays + 1} {
		_, err := CreateAuthority(AuthorityOptions{Dir: t.TempDir(), Days: days})
		judged(t, "CreateAuthority", err, ErrInvalid, "days")
	}
}

func TestIssue(t *testing.T) {
	ca := newAuthority(t)
	now := time.Now()
	files := issued(t, ca, Request{Name: "a", Hosts: []string{"10.0.0.1", "A.Example", "::1"}, Days: 30, Now: now})
	chain, err := ReadCertificates(files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	got := Describe(chain[0])
	want := Description{
		Agent: "a", Subject: "CN=a", Issuer: ca.cert.Subject.String(),
		Hosts: []string{"a.example", "10.0.0.1", "::1"}, Usages: []string{"server", "client"},
		NotBefore: now.Add(-backdated).UTC().Truncate(time.Second), NotAfter: now.Add(30 * day).UTC().Truncate(time.Second),
		Serial: got.Serial, Fingerprint: got.Fingerprint,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(got.Fingerprint) != 64 || len(got.Serial) < 30 {
		t.Errorf("%+v", got)
	}
	if key, ok := chain[0].PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("a key of type %T", chain[0].PublicKey)
	}
	if err := Check(chain, []*x509.Certificate{ca.cert}, now); err != nil {
		t.Error(err)
	}
	for path, mode := range map[string]fs.FileMode{files.Key: 0o600, files.Cert: 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if authority := Describe(ca.cert); !authority.Authority || !cmp.Equal(authority.Usages, []string{"sign"}) {
		t.Errorf("%+v", authority)
	}
}

func TestRenew(t *testing.T) {
	ca := newAuthority(t)
	files := issued(t, ca, Request{Name: "a", Hosts: []string{"h", "10.0.0.1"}})
	cert, key := read(t, files.Cert), read(t, files.Key)
	_, err := ca.Issue(Request{Name: "a"})
	judged(t, "Issue", err, ErrExists, "--renew replaces it")
	if !bytes.Equal(read(t, files.Cert), cert) || !bytes.Equal(read(t, files.Key), key) {
		t.Error("a refused request has changed the files")
	}
	issued(t, ca, Request{Name: "a", Renew: true})
	if bytes.Equal(read(t, files.Cert), cert) || bytes.Equal(read(t, files.Key), key) {
		t.Error("the files are as they were")
	}
	hosts := func() []string {
		chain, err := ReadCertificates(files.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return hostsIn(chain[0])
	}
	if got := hosts(); !cmp.Equal(got, []string{"h", "10.0.0.1"}) {
		t.Errorf("hosts are not kept: %v", got)
	}
	issued(t, ca, Request{Name: "a", Renew: true, Hosts: []string{"other"}})
	if got := hosts(); !cmp.Equal(got, []string{"other"}) {
		t.Errorf("hosts: %v", got)
	}
	// One that stands alone is not half replaced.
	remove(t, files.Key)
	_, err = ca.Issue(Request{Name: "a"})
	judged(t, "Issue", err, ErrExists, files.Cert)
	if _, err := os.Stat(files.Key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was left without its certificate: %v", err)
	}
	write(t, files.Cert, []byte("damaged"))
	_, err = ca.Issue(Request{Name: "a", Renew: true})
	judged(t, "Issue", err, ErrFile, "no PEM certificate")
}

func TestIssueRefusals(t *testing.T) {
	ca := newAuthority(t)
	for name, r := range map[string]Request{
		"no name":      {},
		"dots":         {Name: ".."},
		"a path":       {Name: "../ca"},
		"a space":      {Name: "a b"},
		"a percent":    {Name: "a%2e"},
		"beyond ASCII": {Name: "é"},
		"long":         {Name: strings.Repeat("a", MaxNameBytes+1)},
		"past":         {Name: "a", Days: -1},
		"beyond CA":    {Name: "a", Days: AuthorityDays},
		"a port":       {Name: "a", Hosts: []string{"h:1"}},
		"a wildcard":   {Name: "a", Hosts: []string{"*.example"}},
		"empty host":   {Name: "a", Hosts: []string{""}},
		"empty label":  {Name: "a", Hosts: []string{"a..b"}},
		"long label":   {Name: "a", Hosts: []string{strings.Repeat("a", 64)}},
		"a zone":       {Name: "a", Hosts: []string{"fe80::1%eth0"}},
	} {
		_, err := ca.Issue(r)
		judged(t, name, err, ErrInvalid, "")
	}
	if entries, _ := os.ReadDir(ca.dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	long := strings.Repeat("a", MaxNameBytes)
	if s := opened(t, Options{Files: issued(t, ca, Request{Name: long})}); s.Name() != long {
		t.Error("the longest name does not come back")
	}
}
