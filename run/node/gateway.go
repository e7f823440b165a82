package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"meridian/member/directory"
	"meridian/member/trust"
	"meridian/see/dash"
	"meridian/see/history"
	"meridian/see/ledger"
	"meridian/see/targets"
	"meridian/see/telemetry"
	"meridian/serve/gateway"
	"meridian/serve/gateway/edge"
)

// GatewayOptions says what a gateway's process is made of.
type GatewayOptions struct {
	gateway.Options

	// StateDir holds the cell's key, the directory's socket and the records of
	// requests.
	StateDir string
	// Directory lists endpoints; empty means the one in StateDir. It is asked
	// only where no engine is listed. Name and TLS are shown to an https one.
	DirectoryEndpoints []string
	Name               string
	TLSOfAgents        trust.TLS
	InsecureDirectory  bool
	// Cert and Key are what clients see; empty for no TLS.
	Cert, Key string
	// APIKeyFile has keys, one a line; empty for none.
	APIKeyFile string
	// AdminKeyFile has those of the admin listener; empty for none.
	AdminKeyFile string

	// DirectoryPrefix is what keys of the cell begin with; empty means the usual one.
	DirectoryPrefix string
	// Metrics is a second place of /metrics, beside the admin listener; empty for none.
	Metrics string
	// AgentListen is the host of agent.listen and AgentAdvertise agent.advertise:
	// how the agents of other hosts answer what the gateway asks them.
	AgentListen, AgentAdvertise string

	OTLPEndpoint string
	Build        telemetry.Build
	// PageLinger is for how long the cell is still looked at when no browser watches the
	// page any more; 0 for the usual time.
	PageLinger time.Duration
}

// Gateway is a running gateway and what stands around it.
type Gateway struct {
	*gateway.Gateway
	directory directory.Directory
	records   *ledger.Ledger
	telemetry *telemetry.Telemetry
	keyFiles  edge.KeyFiles
	logger    *slog.Logger
	announced *targets.Announcement
	page      *dash.Page
	book      *history.GatewayBook
	membership
}

// OpenGateway starts a gateway's process, or nothing.
func OpenGateway(ctx context.Context, o GatewayOptions) (*Gateway, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	g := &Gateway{}
	if err := g.open(ctx, o); err != nil {
		return nil, errors.Join(err, g.Close(context.WithoutCancel(ctx)))
	}
	return g, nil
}

func (g *Gateway) open(ctx context.Context, o GatewayOptions) error {
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("node: state directory: %w", err)
	}
	g.keyFiles, g.logger = edge.KeyFiles{API: o.APIKeyFile, Admin: o.AdminKeyFile, Given: slices.Clone(o.APIKeys), Logger: o.Logger}, o.Logger
	if err := o.secrets(g.keyFiles); err != nil {
		return err
	}
	var err error
	if len(o.Backends) == 0 {
		g.directory, err = OpenDirectory(ctx, DirectoryOptions{
			Endpoints: o.DirectoryEndpoints, StateDir: o.StateDir, Name: o.Name, TLS: o.TLSOfAgents, Insecure: o.InsecureDirectory, Prefix: o.DirectoryPrefix, Logger: o.Logger,
		})
		if err != nil {
			return err
		}
		o.Options.Directory = g.directory
	}
	if g.records, err = ledger.Open(ledger.Options{Dir: o.StateDir, Logger: o.Logger}); err != nil {
		return err
	}
	o.Ledger = g.records
	g.book = &history.GatewayBook{Records: g.records, Dir: o.StateDir, Build: o.Build, Started: time.Now()}
	// The page needs the gateway's numbers, and the gateway needs the page.
	var opened atomic.Pointer[gateway.Gateway]
	_, port, _ := net.SplitHostPort(o.Listen)
	g.telemetry, err = telemetry.Open(ctx, telemetry.Options{
		// An agent of this host has the bare name, and another gateway another port.
		Instance: "gateway@" + o.Name + ":" + port,
		Build:    o.Build, Listen: o.Metrics, OTLPEndpoint: o.OTLPEndpoint, Logger: o.Logger, Sources: []telemetry.Source{gatewaySource(&opened)},
	})
	if err != nil {
		return err
	}
	o.Traces = g.telemetry.Tracing()
	o.Ended = func(r *ledger.Record) { g.telemetry.Trace(history.RequestSpans(r)...) }
	o.MetricsPage = http.Handler(g.telemetry.Handler(o.Logger))
	if g.page, err = dash.Open(ctx, dash.Options{Cell: dash.CellOf(front{g, o.Build.Version}, g.book), Linger: o.PageLinger, Logger: o.Logger}); err != nil {
		return err
	}
	o.PagePath, o.Page = dash.Prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if opened.Load() == nil {
			http.Error(w, "the gateway is starting", http.StatusServiceUnavailable)
			return
		}
		g.page.ServeHTTP(w, r)
	})
	if g.Gateway, err = gateway.Open(ctx, o.Options); err != nil {
		return err
	}
	opened.Store(g.Gateway)
	if address := cmp.Or(g.telemetry.Addr(), g.AdminAddr()); address != "" && g.directory != nil {
		_, port, _ := net.SplitHostPort(address) // several may run on one host
		t := targets.Target{Kind: targets.Gateway, Name: o.Name + ":" + port}
		if g.telemetry.Addr() == "" && strings.HasPrefix(g.AdminURL(), "https:") {
			t.URL = "https" // and a key, which operators give the scraper
		}
		g.announced = targets.Announce(g.directory, t, address, "", o.Logger)
	}
	if g.directory != nil {
		g.join(o, g.book)
	}
	o.Logger.Info("gateway is open", "listen", g.Addr(), "admin", g.AdminURL())
	return nil
}

// secrets reads the cell's key, the certificate and the API keys.
func (o *GatewayOptions) secrets(files edge.KeyFiles) error {
	key, err := trust.OpenCellKey(o.StateDir)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	legs := key.Derive(trust.ForGatewayLegs)
	o.LegKey = &legs
	if o.Cert != "" || o.Key != "" {
		if o.TLS, err = edge.TLSFromFiles(o.Cert, o.Key, o.Logger); err != nil {
			return err
		}
	}
	return files.Read(&o.APIKeys, &o.AdminKeys)
}

// Reload reads the files of keys again; where one cannot be used, the keys in
// force stay. Certificates are read again as they change, without being told.
func (g *Gateway) Reload() error { return g.keyFiles.Reload(g.SetAPIKeys, g.SetAdminKeys) }

// IsWatched tells whether the cell is looked at for the page.
func (g *Gateway) IsWatched() bool { return g.page.Looks() }

// Close lets requests end that have begun, then stops everything in the reverse
// order.
func (g *Gateway) Close(ctx context.Context) error {
	err := closeOpened(ctx, g.Gateway)
	g.announced.Close()
	// What is left takes no time; it must not be lost to a drain that took all.
	rest := context.WithoutCancel(ctx)
	return errors.Join(err, closeOpened(rest, g.page), g.leave(rest), delivered(closeOpened(rest, g.telemetry), g.logger),
		closeOpened(rest, g.records), closeOpened(rest, g.directory))
}

// gatewaySource hands a gateway's numbers to telemetry, once it is open.
func gatewaySource(opened *atomic.Pointer[gateway.Gateway]) telemetry.Source {
	return func(s *telemetry.Sink) {
		if g := opened.Load(); g != nil {
			s.Fields(g.Metrics())
		}
	}
}
