package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"

	"meridian/member/directory"
	"meridian/member/directory/etcd"
	"meridian/member/directory/etcd/embedded"
	"meridian/member/trust"
)

// DirectoryOptions says which directory, and who asks.
type DirectoryOptions struct {
	// Endpoints of an etcd; none means the one in StateDir.
	Endpoints []string
	StateDir  string
	// Name is the agent whose certificate is shown to an https endpoint.
	Name string
	TLS  trust.TLS
	// Insecure allows http endpoints beyond loopback.
	Insecure bool
	// Prefix is what keys of the cell begin with; empty means the usual one.
	Prefix string
	Logger *slog.Logger
}

// OpenDirectory dials the directory of a cell.
func OpenDirectory(ctx context.Context, o DirectoryOptions) (directory.Directory, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	e := parseEndpoints(o.Endpoints, o.StateDir)
	var source *trust.Source
	if len(e.secured) > 0 {
		var err error
		if source, err = o.TLS.Open(o.StateDir, o.Name, o.Logger); err != nil {
			return nil, err
		}
	}
	return e.open(ctx, o, source)
}

// endpoints of a directory, by what they need.
type endpoints struct {
	all     []string
	secured []string // hosts that are dialed with TLS
	exposed []string // endpoints beyond loopback without
}

func parseEndpoints(given []string, stateDir string) endpoints {
	if len(given) == 0 {
		given = []string{embedded.Endpoint(stateDir)}
	}
	e := endpoints{all: given}
	for _, endpoint := range given {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil: // who dials it says what is wrong
		case u.Scheme == "https":
			e.secured = append(e.secured, u.Hostname())
		case u.Scheme == "http" && !trust.IsLoopback(u.Hostname()):
			e.exposed = append(e.exposed, endpoint)
		}
	}
	return e
}

func (e endpoints) open(ctx context.Context, o DirectoryOptions, source *trust.Source) (directory.Directory, error) {
	dial := etcd.Options{Endpoints: e.all, Namespace: o.Prefix}
	switch {
	case len(e.exposed) > 0 && !o.Insecure:
		return nil, fmt.Errorf("node: the directory %s is beyond loopback and has no TLS: a host on the way could send agents anywhere; "+
			"give it a certificate and dial https, or allow it with --insecure", e.exposed[0])
	case len(e.secured) > 0 && source == nil:
		return nil, fmt.Errorf("%w of agent %s, and the directory at %s has TLS: `meridian cert issue %s` makes one",
			trust.ErrNoCertificate, o.Name, e.secured[0], o.Name)
	case len(e.secured) > 0:
		dial.TLS = source.HostClient(e.secured...)
	}
	if len(e.exposed) > 0 {
		o.Logger.Warn("the directory is dialed beyond loopback without TLS", "endpoints", e.exposed)
	}
	return etcd.Open(ctx, dial)
}
