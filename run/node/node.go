// Package node is the fuse box: it chooses adapters, starts what a process
// needs in the right order and stops it in the other. No other room knows
// all of them; only commands import it.
//
//	name, certificate, cell key ─► directory ─► agent (host, file, tcp) ─► store ─► transceiver ─► prefixes ─► engine door
//	                                                       ─► metrics endpoint ─► admin socket
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"meridian/keep/prefix"
	"meridian/keep/prefix/survey"
	"meridian/keep/store"
	"meridian/keep/store/tier"
	"meridian/member/directory"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/agent/peerquery"
	"meridian/move/cuda"
	"meridian/move/mem/vram"
	"meridian/move/transceiver"
	"meridian/see/history"
	"meridian/see/targets"
	"meridian/see/telemetry"
	"meridian/serve/doorserver"
	"meridian/serve/doorstore"
	"meridian/serve/governing"
)

// AgentOptions says what an agent's process is made of.
type AgentOptions struct {
	Name string
	// Fabrics are what the agent moves bytes with, the preferred one first; none
	// means FabricNames.
	Fabrics []string
	// Listen is the tcp fabric's address.
	Listen string
	// Advertise is the host by which others reach Listen, if it is another.
	Advertise string
	Streams   int
	// TLS says who the agent is to other hosts.
	TLS trust.TLS
	// Insecure allows Listen and the directory to be beyond loopback without
	// TLS. Peers must know the cell's key even then.
	Insecure bool
	// Strangers, Handshake and Grants bound what others can take of this
	// agent: connections that have not proven who they are, how long they may
	// take to, and grants that hold at a time. Zero takes the defaults.
	Strangers int
	Handshake time.Duration
	Grants    int
	// StateDir holds the directory's and the agents' sockets, the cell's key and
	// certificates; it belongs to one user.
	StateDir string
	// Directory lists endpoints; empty means the one in StateDir. NoDirectory
	// does without.
	Directory   []string
	NoDirectory bool
	// DirectoryPrefix is what keys of the cell begin with; empty means the usual one.
	DirectoryPrefix string
	// Door is where engines come in; nil means nowhere.
	Door *Door
	// Store is the part that the process has in the object cache; nil means none.
	Store *Store
	// Metrics is where /metrics is served; empty means nowhere. MetricsElseFree takes
	// another port where that is taken.
	Metrics         string
	MetricsElseFree bool
	// OTLPEndpoint is where metrics and traces are sent; empty means nowhere.
	OTLPEndpoint string
	Build        telemetry.Build
	Logger       *slog.Logger

	// book is what others are told from where the process has no door.
	book peerquery.Source
	// gpus stands in for CUDA's driver, in tests.
	gpus cuda.Driver
	// machine stands in for the name of this machine, in tests.
	machine string
}

// Agent is a running agent and what stands around it.
type Agent struct {
	*agent.Agent
	Directory directory.Directory
	// Transceiver hands requests' caches over for engines of this process.
	Transceiver *transceiver.Transceiver
	// Door is where engines of other processes come in; nil if they do not.
	Door *doorserver.Server
	// Store is the object cache; nil if the process has no part in it.
	Store *store.Store
	// Governors decide for engines that tell of their steps; nil if none does.
	Governors *governing.Governors
	// Prefixes is what engines keep and find; nil if they do not.
	Prefixes *prefix.Cache
	// Questions asks other agents what they remember, and Survey what the cell keeps of prompts.
	Questions *peerquery.Service
	// History is what the agent remembers.
	History *history.Records
	Survey  *survey.Survey

	objects   *doorstore.Cache // the store as the door reaches it; nil where either is missing
	gpus      *vram.Pool       // of what engines lend
	name      *agent.NameLock
	identity  trust.Identity
	telemetry *telemetry.Telemetry
	admin     *admin
	logger    *slog.Logger
	announced *targets.Announcement
	tiers     []*tier.Opening // of the object cache
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

// OpenAgent starts an agent's process, or nothing.
func OpenAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	n := &Agent{logger: o.Logger}
	if err := n.open(ctx, o); err != nil {
		return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

func (n *Agent) open(ctx context.Context, o AgentOptions) error {
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("node: state directory: %w", err)
	}
	var err error
	if n.name, err = agent.LockName(ctx, o.StateDir, o.Name); err != nil {
		return err
	}
	if n.identity, err = trust.OpenIdentity(o.TLS, o.StateDir, o.Name, o.Logger); err != nil {
		return err
	}
	n.gpus = vram.NewPool(o.gpus) // loads CUDA's driver when GPU memory is first lent
	fabrics, err := o.openers(n.identity, n.gpus)
	if err != nil {
		return err
	}
	if !o.NoDirectory {
		d := DirectoryOptions{Name: o.Name, Insecure: o.Insecure, Prefix: o.DirectoryPrefix, Logger: o.Logger}
		if n.Directory, err = parseEndpoints(o.Directory, o.StateDir).open(ctx, d, n.identity.TLS); err != nil {
			return err
		}
		agent.AwaitName(ctx, n.Directory, o.Name, n.name.ID, o.Logger)
	}
	if err := n.openHistory(o); err != nil {
		return err
	}
	n.Agent, err = agent.Open(ctx, agent.Options{
		Name: o.Name, Lock: n.name.ID, Directory: n.Directory, Grants: o.Grants, Logger: o.Logger, Fabrics: fabrics, Ended: n.History.TransferEnded,
	})
	if err != nil {
		return err
	}
	if err := n.openStore(ctx, o); err != nil {
		return err
	}
	if err := n.openDoor(ctx, o); err != nil {
		return err
	}
	if err := n.openQuestions(ctx, o); err != nil {
		return err
	}
	o.Logger.Info("agent is open", "agent", o.Name, "incarnation", n.Incarnation().String(), "proof", n.Proof())
	n.telemetry, err = telemetry.Open(ctx, telemetry.Options{
		Build: o.Build, Listen: o.Metrics, ElseFree: o.MetricsElseFree, OTLPEndpoint: o.OTLPEndpoint, Logger: o.Logger,
		Sources: n.sources(), Instance: o.Name,
	})
	if err != nil {
		return err
	}
	n.History.TraceTo(n.telemetry)
	if address := n.MetricsAddr(); address != "" && n.Directory != nil {
		n.announced = targets.Announce(n.Directory, targets.Target{Kind: targets.Agent, Name: o.Name}, address, o.advertisedHost(), o.Logger)
	}
	n.admin, err = openAdmin(history.AdminSocket(o.StateDir, o.Name), n)
	return err
}

// Proof says what the agent proves itself with to peers over tcp.
func (n *Agent) Proof() string { return n.identity.String() }

// HasTLS tells whether it is a certificate.
func (n *Agent) HasTLS() bool { return n.identity.TLS != nil }

// MetricsAddr is where /metrics is served, or "".
func (n *Agent) MetricsAddr() string { return n.telemetry.Addr() }

// Close stops everything in the reverse order and waits for it. Where something does
// not end, the name stays held until Close succeeds or the process ends: an agent that
// took it over would believe this one dead.
func (n *Agent) Close(ctx context.Context) error {
	errs := []error{closeOpened(ctx, n.admin)}
	n.announced.Close()
	errs = append(errs, delivered(closeOpened(ctx, n.telemetry), n.logger), closeOpened(ctx, n.Questions), closeOpened(ctx, n.Door),
		closeOpened(ctx, n.Prefixes), closeOpened(ctx, n.Transceiver), closeOpened(ctx, n.Store))
	n.closeTiers(ctx, n.logger)
	errs = append(errs, closeOpened(ctx, n.Agent))
	if n.gpus != nil {
		errs = append(errs, n.gpus.Close())
	}
	errs = append(errs, closeOpened(ctx, n.History), closeOpened(ctx, n.Directory))
	if err := errors.Join(errs...); err != nil || n.name == nil {
		n.name.Keep()
		return err
	}
	err := n.name.Release()
	n.name = nil
	return err
}

// closeOpened closes a part of a process, if it was opened.
func closeOpened[T interface {
	comparable
	Close(context.Context) error
}](ctx context.Context, part T) error {
	var none T
	if part == none {
		return nil
	}
	return part.Close(ctx)
}

// advertisedHost is the host of Advertise, which may have a port.
func (o *AgentOptions) advertisedHost() string {
	if host, _, err := net.SplitHostPort(o.Advertise); err == nil {
		return host
	}
	return o.Advertise
}
