package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"

	"meridian/member/trust"
)

// TLSMode says whether an agent has a certificate.
type TLSMode string

// The modes. An agent without a certificate proves to its peers that it knows
// the cell's key, which is for one machine.
const (
	TLSAuto     TLSMode = "auto" // TLS if there is a certificate
	TLSOff      TLSMode = "off"
	TLSRequired TLSMode = "required"
)

// ErrNoCertificate means that an agent must show a certificate and has none.
var ErrNoCertificate = errors.New("node: there is no certificate")

// TLS says how a process is known between hosts.
type TLS struct {
	Mode TLSMode // "" means TLSAuto
	// Files that are empty are where `meridian cert issue` puts them in the
	// state directory.
	Files trust.Files
}

// FilesOf says where the files of an agent are.
func (t TLS) FilesOf(stateDir, name string) trust.Files {
	files := trust.FilesIn(trust.Dir(stateDir), name)
	for _, named := range []struct {
		path string
		into *string
	}{{t.Files.CA, &files.CA}, {t.Files.Cert, &files.Cert}, {t.Files.Key, &files.Key}} {
		if named.path != "" {
			*named.into = named.path
		}
	}
	return files
}

// open returns nil where the agent is to do without TLS. A certificate that is
// there and cannot be used is an error, whatever the mode: no agent is to go
// without TLS by accident.
func (t TLS) open(stateDir, name string, logger *slog.Logger) (*trust.Source, error) {
	files := t.FilesOf(stateDir, name)
	there, err := anyExists(files.Cert, files.Key)
	switch named := t.Files.Cert != "" || t.Files.Key != ""; {
	case t.Mode == TLSOff:
		return nil, nil
	case t.Mode != TLSAuto && t.Mode != TLSRequired && t.Mode != "":
		return nil, fmt.Errorf("node: no TLS mode %q; there is %s, %s, %s", t.Mode, TLSAuto, TLSOff, TLSRequired)
	case err != nil:
		return nil, fmt.Errorf("node: %w", err)
	case !there && !named && t.Mode == TLSRequired:
		return nil, fmt.Errorf("%w of agent %s at %s, and TLS is required: `meridian cert init` makes a CA, `meridian cert issue %s` a certificate",
			ErrNoCertificate, name, files.Cert, name)
	case !there && !named:
		return nil, nil
	}
	var source *trust.Source
	source, err = trust.Open(trust.Options{Files: files, Name: name, OnReload: func(err error) {
		if err != nil {
			logger.Warn("the certificate has changed and cannot be used; the one before it stays in force", "error", err)
			return
		}
		logger.Info("the certificate was read again", "agent", name)
	}})
	if err != nil {
		return nil, fmt.Errorf("node: agent %s: %w", name, err)
	}
	return source, nil
}

func anyExists(paths ...string) (bool, error) {
	for _, path := range paths {
		_, err := os.Lstat(path)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// proof is what an agent shows its peers: over tcp its certificate or, without
// one, that it knows the cell's key; within the machine always the key.
type proof struct {
	tls *trust.Source // nil without TLS
	key trust.CellKey
}

func (o AgentOptions) proof() (proof, error) {
	source, err := o.TLS.open(o.StateDir, o.Name, o.Logger)
	if err != nil {
		return proof{}, err
	}
	key, err := trust.OpenCellKey(o.StateDir)
	if err != nil {
		return proof{}, fmt.Errorf("node: %w", err)
	}
	return proof{tls: source, key: key}, nil
}

func (p proof) String() string {
	if p.tls == nil {
		return "cell key"
	}
	return fmt.Sprintf("TLS, certificate of %s until %s", p.tls.Name(), p.tls.NotAfter().Format(time.DateOnly))
}

// checkListen refuses to open memory to a network by accident.
func (o AgentOptions) checkListen(p proof) error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("node: %q is not host:port: %w", o.Listen, err)
	}
	if address := net.ParseIP(host); o.Advertise == "" && (host == "" || address != nil && address.IsUnspecified()) {
		o.Logger.Warn("peers on other hosts cannot dial an address that means all of this host's: say which one with agent.advertise", "listen", o.Listen)
	}
	switch {
	case isLoopback(host) || p.tls != nil:
		return nil
	case !o.Insecure:
		return fmt.Errorf("node: %s is beyond loopback, and agent %s has no certificate for TLS: make a CA with `meridian cert init` and "+
			"a certificate with `meridian cert issue %s`, or allow a network that reads and changes everything with --insecure", o.Listen, o.Name, o.Name)
	}
	o.Logger.Warn("the data plane listens beyond loopback without TLS: peers prove that they know the cell's key, "+
		"but a host on the way can read and change what is sent", "listen", o.Listen)
	return nil
}

func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}
