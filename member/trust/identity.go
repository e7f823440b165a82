package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"
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
	Files Files
}

// FilesOf says where the files of an agent are.
func (t TLS) FilesOf(stateDir, name string) Files {
	files := FilesIn(Dir(stateDir), name)
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

// Open returns nil where the agent is to do without TLS. A certificate that is
// there and cannot be used is an error, whatever the mode: no agent is to go
// without TLS by accident.
func (t TLS) Open(stateDir, name string, logger *slog.Logger) (*Source, error) {
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
	var source *Source
	source, err = Open(Options{Files: files, Name: name, OnReload: func(err error) {
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

// HasCertificate tells whether there is one of an agent where its files are.
func (t TLS) HasCertificate(stateDir, name string) (bool, error) {
	return anyExists(t.FilesOf(stateDir, name).Cert)
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

// Identity is what an agent shows its peers: over tcp its certificate or, without
// one, that it knows the cell's key; within the machine always the key.
type Identity struct {
	TLS *Source // nil without TLS
	Key CellKey
}

// OpenIdentity reads an agent's certificate, if it is to have one, and the cell's key.
func OpenIdentity(t TLS, stateDir, name string, logger *slog.Logger) (Identity, error) {
	source, err := t.Open(stateDir, name, logger)
	if err != nil {
		return Identity{}, err
	}
	key, err := OpenCellKey(stateDir)
	if err != nil {
		return Identity{}, fmt.Errorf("node: %w", err)
	}
	return Identity{TLS: source, Key: key}, nil
}

func (i Identity) String() string {
	if i.TLS == nil {
		return "cell key"
	}
	return fmt.Sprintf("TLS, certificate of %s until %s", i.TLS.Name(), i.TLS.NotAfter().Format(time.DateOnly))
}

// IsLoopback tells whether a host is this machine, which needs no TLS to itself.
func IsLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}
