// Package node is the fuse box: it chooses adapters, starts what a process
// needs in the right order and stops it in the other. No other room knows
// everybody; nobody but commands imports it.
//
//	directory ─► agent (tcp …) ─► metrics endpoint ─► admin socket
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"meridian/agent"
	"meridian/fabric"
	"meridian/fabric/tcp"
	"meridian/meta"
	"meridian/meta/etcd"
	"meridian/meta/etcd/embedded"
	"meridian/telemetry"
)

// AgentOptions says what an agent's process is made of.
type AgentOptions struct {
	Name string
	// Listen is the tcp fabric's address.
	Listen  string
	Streams int
	// Insecure allows Listen to be beyond loopback, where anybody who reaches
	// it can read and write registered memory: there is no TLS yet.
	Insecure bool
	// StateDir holds the directory's and the agents' sockets; it belongs to
	// one user.
	StateDir string
	// Directory lists endpoints; empty means the one in StateDir. NoDirectory
	// does without.
	Directory   []string
	NoDirectory bool
	// Metrics is where /metrics is served; empty means nowhere.
	Metrics string
	// OTLPEndpoint is where metrics and traces are sent; empty means nowhere.
	OTLPEndpoint string
	Build        telemetry.Build
	Logger       *slog.Logger
}

// Agent is a running agent and what stands around it.
type Agent struct {
	*agent.Agent
	Directory meta.Directory

	telemetry *telemetry.Telemetry
	admin     *admin
}

// DefaultStateDir is where a user's sockets and data live.
func DefaultStateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "meridian"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("node: no home to keep state in; name a state directory: %w", err)
	}
	return filepath.Join(home, ".local", "state", "meridian"), nil
}

// OpenDirectory dials the directory of a cell.
func OpenDirectory(ctx context.Context, stateDir string, endpoints []string) (meta.Directory, error) {
	if len(endpoints) == 0 {
		endpoints = []string{embedded.Endpoint(stateDir)}
	}
	return etcd.Open(ctx, etcd.Options{Endpoints: endpoints})
}

// OpenAgent starts an agent's process, or nothing.
func OpenAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Agent{}
	if err := n.open(ctx, o); err != nil {
		return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

func (n *Agent) open(ctx context.Context, o AgentOptions) (err error) {
	if err := o.checkListen(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("node: state directory: %w", err)
	}
	if !o.NoDirectory {
		if n.Directory, err = OpenDirectory(ctx, o.StateDir, o.Directory); err != nil {
			return err
		}
	}
	n.Agent, err = agent.Open(ctx, agent.Options{
		Name: o.Name, Directory: n.Directory, Logger: o.Logger, Fabrics: []agent.Opener{overTCP(o)},
	})
	if err != nil {
		return err
	}
	n.telemetry, err = telemetry.Open(ctx, telemetry.Options{
		Build: o.Build, Listen: o.Metrics, OTLPEndpoint: o.OTLPEndpoint, Sources: []telemetry.Source{agentSource(n.Agent)}, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	n.admin, err = openAdmin(AdminSocket(o.StateDir, o.Name), n.Agent)
	return err
}

// checkListen refuses to open memory to a network by accident.
func (o AgentOptions) checkListen() error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("node: %q is not host:port: %w", o.Listen, err)
	}
	if address := net.ParseIP(host); host == "localhost" || address != nil && address.IsLoopback() {
		return nil
	}
	if !o.Insecure {
		return fmt.Errorf("node: %s is beyond loopback, and the data plane has no authentication yet: "+
			"anybody who reaches it could read and write registered memory; allow that with --insecure", o.Listen)
	}
	o.Logger.Warn("the data plane listens beyond loopback without authentication", "listen", o.Listen)
	return nil
}

func overTCP(o AgentOptions) agent.Opener {
	return func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		return tcp.Open(ctx, tcp.Options{
			Agent: self.Name, Incarnation: self.Incarnation, Listen: o.Listen, Streams: o.Streams,
			Events: self.Events, Metadata: self.Metadata, Logger: self.Logger,
		})
	}
}

// MetricsAddr is where /metrics is served, or "".
func (n *Agent) MetricsAddr() string { return n.telemetry.Addr() }

// Close stops everything in the reverse order and waits for it.
func (n *Agent) Close(ctx context.Context) error {
	var errs []error
	if n.admin != nil {
		errs = append(errs, n.admin.close(ctx))
	}
	if n.telemetry != nil {
		errs = append(errs, n.telemetry.Close(ctx))
	}
	if n.Agent != nil {
		errs = append(errs, n.Agent.Close(ctx))
	}
	if n.Directory != nil {
		errs = append(errs, n.Directory.Close(ctx))
	}
	return errors.Join(errs...)
}

// agentSource hands an agent's numbers to telemetry.
func agentSource(a *agent.Agent) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := a.Metrics()
		s.Value("meridian_agent_transfers_posted_total", float64(m.Posted))
		s.Value("meridian_agent_transfers_ended_total", float64(m.Done), "done")
		s.Value("meridian_agent_transfers_ended_total", float64(m.Failed), "failed")
		s.Value("meridian_agent_bytes_total", float64(m.BytesRead), "read")
		s.Value("meridian_agent_bytes_total", float64(m.BytesWritten), "write")
		s.Value("meridian_agent_notifications_total", float64(m.Notified), "taken")
		s.Value("meridian_agent_notifications_total", float64(m.NotificationsRefused), "refused")
		s.Value("meridian_agent_regions", float64(m.Regions))
		s.Value("meridian_agent_peers", float64(m.Peers))
	}
}

// Agents lists the agents of this user that have an admin socket in stateDir.
func Agents(stateDir string) ([]string, error) {
	sockets, err := filepath.Glob(AdminSocket(stateDir, "*"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range sockets {
		name := strings.TrimPrefix(filepath.Base(path), "agent-")
		names = append(names, strings.TrimSuffix(name, ".sock"))
	}
	slices.Sort(names)
	return names, nil
}
