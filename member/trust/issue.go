package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"time"
)

const (
	maxDays       = 36500
	maxCommonName = 64 // X.520's limit
)

// Request asks for the certificate of an agent.
type Request struct {
	Name string
	// Hosts are DNS names and IP addresses for clients that know a server by
	// its host. Agents know each other by name, and need none.
	Hosts []string
	Days  int // 0: IssuedDays
	// Renew replaces what the agent has, and keeps its hosts unless there are
	// new ones. Without it, what is there stays.
	Renew bool
	Now   time.Time // zero: time.Now()
}

// Issue makes a key and a certificate that is good for both sides of a link.
func (a *Authority) Issue(r Request) (Files, error) {
	if err := CheckName(r.Name); err != nil {
		return Files{}, err
	}
	files := FilesIn(a.dir, r.Name)
	if err := a.issue(r, files); err != nil {
		hint := hints.For(err)
		if errors.Is(err, ErrExists) {
			hint = "--renew replaces it"
		}
		return Files{}, &Error{Op: "issue certificate of", Subject: r.Name, Err: err, Hint: hint}
	}
	return files, nil
}

func (a *Authority) issue(r Request, files Files) error {
	if r.Now.IsZero() {
		r.Now = time.Now()
	}
	ends, err := endOf(r.Now, r.Days, IssuedDays)
	if err != nil {
		return err
	}
	if ends.After(a.cert.NotAfter) {
		return because(ErrInvalid, fmt.Sprintf("it would end at %s, the CA ends at %s: ask for fewer days, or make a new CA", stamp(ends), stamp(a.cert.NotAfter)))
	}
	write := createFile
	if r.Renew {
		write = replaceFile
		if r.Hosts, err = keptHosts(files.Cert, r.Hosts); err != nil {
			return err
		}
	}
	template := &x509.Certificate{
		NotBefore: r.Now.Add(-backdated), NotAfter: ends, URIs: []*url.URL{nameURI(r.Name)},
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(r.Name) <= maxCommonName {
		template.Subject.CommonName = r.Name
	}
	if template.DNSNames, template.IPAddresses, err = splitHosts(r.Hosts); err != nil {
		return err
	}
	made, err := newPair(template, a)
	if err != nil {
		return err
	}
	return made.write(files, write)
}

func keptHosts(certFile string, wanted []string) ([]string, error) {
	if len(wanted) > 0 {
		return wanted, nil
	}
	chain, err := ReadCertificates(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return hostsIn(chain[0]), nil
}

func endOf(now time.Time, days, otherwise int) (time.Time, error) {
	if days == 0 {
		days = otherwise
	}
	if days < 1 || days > maxDays {
		return now, because(ErrInvalid, fmt.Sprintf("%d days; 1 to %d are possible", days, maxDays))
	}
	return now.Add(time.Duration(days) * 24 * time.Hour), nil
}

func splitHosts(hosts []string) (names []string, addresses []net.IP, err error) {
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			addresses = append(addresses, ip)
			continue
		}
		if !isDNSName(host) {
			return nil, nil, because(ErrInvalid, fmt.Sprintf("%.300q is neither an IP address nor a DNS name; a port does not belong to it", host))
		}
		names = append(names, strings.ToLower(host))
	}
	return names, addresses, nil
}

func isDNSName(host string) bool {
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
				return false
			}
		}
	}
	return len(host) <= 253
}
