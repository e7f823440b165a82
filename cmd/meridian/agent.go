package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"meridian/member/trust"
	"meridian/run/config"
	"meridian/run/node"
)

// agentFlags are of every command that is an agent while it runs.
type agentFlags struct {
	cellFlags
	Name        string   `help:"Name of the agent, unique in the cell (default: agent.name of the configuration)."`
	Fabrics     []string `placeholder:"NAME" help:"Ways to move bytes, the preferred one first: some of host, file, tcp (default: agent.fabrics)."`
	Listen      string   `placeholder:"ADDRESS" help:"Address of the data plane (default: agent.listen)."`
	Advertise   string   `placeholder:"HOST" help:"Host, or host:port, by which others reach --listen (default: agent.advertise)."`
	Streams     int      `help:"TCP streams to each peer (default: agent.streams)."`
	NoDirectory bool     `help:"Do without a directory; peers are told of by address."`
	Metrics     *string  `placeholder:"ADDRESS" help:"Where /metrics is served; empty for nowhere (default: telemetry.prometheus_listen)."`
}

// doorFlags say who may come in where engines do.
type doorFlags struct {
	Door            string   `placeholder:"SOCKET" help:"Path of the engine door (default: door-NAME.sock in the state directory)."`
	AllowUIDs       []uint32 `name:"allow-uids" placeholder:"UID" help:"Users besides this one whose engines may come; with door.allow_uids of the configuration."`
	RequireLeg      bool     `help:"Refuse hand-offs of engines that no gateway of the cell has asked for (also: door.require_leg)."`
	RequireCacheLeg bool     `help:"Refuse to keep and to find what no gateway of the cell has asked for (also: door.require_cache_leg)."`
}

// options are the flags', and what the configuration says besides.
func (d *doorFlags) options(in *config.Config, logger *slog.Logger) *node.Door {
	return &node.Door{Governor: governingOptions(in, logger), Socket: d.Door, AllowUIDs: append(d.AllowUIDs, in.Door.AllowUIDs...), RequireLeg: d.RequireLeg || in.Door.RequireLeg, RequireCacheLeg: d.RequireCacheLeg || in.Door.RequireCacheLeg}
}

// agentParts are what an agent has besides, each or none.
type agentParts struct {
	door  *node.Door
	store *node.Store
}

// open starts the agent that flags and configuration describe.
func (c *agentFlags) open(ctx context.Context, std *stdio, all *commands, parts agentParts) (*node.Agent, error) {
	loaded, err := all.load(std)
	if err != nil {
		return nil, err
	}
	in := loaded.Config
	if err := c.fill(in); err != nil {
		return nil, err
	}
	name, err := agentName(c.Name, in)
	if err != nil {
		return nil, err
	}
	fabrics := in.Agent.Fabrics
	if len(c.Fabrics) > 0 {
		fabrics = c.Fabrics
	}
	n, err := node.OpenAgent(ctx, node.AgentOptions{
		MetricsElseFree: c.Metrics == nil && loaded.Origin("telemetry.prometheus_listen") == config.Default,
		Name:            name, Fabrics: fabrics, Listen: cmp.Or(c.Listen, in.Agent.Listen), Advertise: cmp.Or(c.Advertise, unless(config.Auto, in.Agent.Advertise)), TLS: c.security(in), Insecure: c.Insecure,
		Strangers: int(in.Agent.MaxStrangers), Handshake: time.Duration(in.Agent.HandshakeTimeoutMs) * time.Millisecond, Grants: int(in.Agent.MaxGrants),
		Streams: cmp.Or(c.Streams, int(in.Agent.Streams)), StateDir: c.State, Directory: c.Directory, NoDirectory: c.NoDirectory, DirectoryPrefix: c.prefix,
		Door: parts.door, Store: parts.store, Metrics: given(c.Metrics, in.Telemetry.PrometheusListen), OTLPEndpoint: otlpEndpoint(in), Build: telemetryBuild(),
		Logger: all.logger(std),
	})
	return n, lacking(err)
}

// shortAgent starts an agent for one errand. Without a name it has one that is made up
// from what it comes for.
func shortAgent(ctx context.Context, std *stdio, all *commands, self agentFlags, errand string, parts agentParts) (*node.Agent, error) {
	named, nowhere := self.Name != "", ""
	if !named {
		var suffix [4]byte
		rand.Read(suffix[:])
		self.Name = fmt.Sprintf("%s-%x", errand, suffix)
	}
	self.Metrics = &nowhere
	// A command that comes for one thing tells how that went, not how its agent fared.
	n, err := self.open(ctx, std, all.quieter("warn"), parts)
	if err != nil && !named && (errors.Is(err, trust.ErrNoCertificate) || errors.Is(err, trust.ErrName)) {
		hint := "an agent made up for one errand has no certificate: issue one with `meridian cert issue NAME`, and come with --name NAME"
		return nil, &failure{err: err, hint: hint, status: exitFailure}
	}
	return n, err
}

func otlpEndpoint(in *config.Config) string {
	if !in.Telemetry.OTLPEnabled {
		return ""
	}
	return in.Telemetry.OTLPEndpoint
}

// metricsPage is where an agent shows its metrics, for a person to open.
func metricsPage(n *node.Agent) string {
	if n.MetricsAddr() == "" {
		return "nowhere"
	}
	return "http://" + n.MetricsAddr() + "/metrics"
}

type agentCommand struct {
	agentFlags
	doorFlags
	Store *sizeOrNone `placeholder:"SIZE" help:"Keep prefixes and other objects of the cell's cache in so much memory, 0 for none (default: store.bytes of the configuration, where store.enabled is true)."`
}

// keeps is how much of the cell's cache the agent keeps, and whether it has to do with it at
// all. One whose configuration says 0 bytes keeps nothing itself, and its engines use what
// others of the cell keep.
func (c *agentCommand) keeps(in *config.Store) (bytes uint64, uses bool) {
	if c.Store != nil {
		return c.Store.Bytes, c.Store.Bytes > 0
	}
	return uint64(in.Bytes), in.Enabled
}

func (c *agentCommand) Run(std *stdio, all *commands) error {
	ctx, cancel := whileServing(all.logger(std), nothingToReload)
	defer cancel()
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	parts := agentParts{door: c.options(loaded.Config, all.logger(std))}
	if keep, uses := c.keeps(&loaded.Config.Store); uses {
		if parts.store, err = storePart(loaded.Config, keep, "", true); err != nil {
			return err
		}
	}
	n, err := c.open(ctx, std, all, parts)
	if err != nil {
		return err
	}
	all.ready(std, fmt.Sprintf("agent %s ready (%s), incarnation %s, metrics at %s", n.Name(), n.Proof(), n.Incarnation(), metricsPage(n)),
		"agent", n.Name(), "incarnation", n.Incarnation().String(), "metrics", metricsPage(n))
	<-ctx.Done()
	return closeSoon(n.Close)
}
