package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"meridian/member/directory"
	"meridian/member/directory/etcd/embedded"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/run/config"
	"meridian/run/node"
)

// cellFlags say which cell a command belongs to. What is not given comes from
// the configuration.
type cellFlags struct {
	State     string   `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory of this user's cell (default: agent.state_dir of the configuration)."`
	Directory []string `placeholder:"URL" help:"Endpoints of the directory (default: directory.endpoint of the configuration)."`
	TLS       string   `enum:",auto,off,required" default:"" placeholder:"MODE" help:"Whether links between hosts have TLS: auto, off or required (default: tls.mode of the configuration)."`
	Insecure  bool     `help:"Allow addresses beyond loopback without TLS; every start warns."`
	prefix    string
}

// fill takes what no flag gave from the configuration.
func (c *cellFlags) fill(in *config.Config) error {
	c.prefix = in.Directory.Prefix
	c.TLS, c.Insecure = cmp.Or(c.TLS, in.TLS.Mode), c.Insecure || in.Agent.Insecure
	c.State = cmp.Or(c.State, unless(config.Auto, in.Agent.StateDir))
	if c.State == "" {
		var err error
		if c.State, err = node.DefaultStateDir(); err != nil {
			return err
		}
	}
	var err error
	if c.State, err = filepath.Abs(c.State); err != nil { // sockets in it are named by whole paths
		return err
	}
	if len(c.Directory) == 0 && in.Directory.Endpoint != config.Auto {
		c.Directory = strings.Split(in.Directory.Endpoint, ",")
	}
	return nil
}

// given is what a flag says, else what is configured.
func given[T any](flag *T, configured T) T {
	if flag != nil {
		return *flag
	}
	return configured
}

// unless is a text of the configuration, or "" where it is the word that stands for none.
func unless(word, text string) string {
	if text == word {
		return ""
	}
	return text
}

// security is what flags and configuration say of certificates.
func (c *cellFlags) security(in *config.Config) trust.TLS {
	named := func(path string) string { return unless(config.Auto, path) }
	return trust.TLS{Mode: trust.TLSMode(c.TLS), Files: trust.Files{CA: named(in.TLS.CA), Cert: named(in.TLS.Cert), Key: named(in.TLS.Key)}}
}

// lacking adds to err what helps where files of TLS are missing.
func lacking(err error) error {
	var refused *trust.Error
	if !errors.As(err, &refused) || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hint := "TLS takes a CA, a certificate and a key: `meridian cert issue NAME` makes them in one state directory, docs/security-setup.md brings them to others"
	return &failure{err: err, hint: hint, status: exitFailure}
}

// agentName is what an agent of this host is called where no flag says.
func agentName(flag string, in *config.Config) (string, error) {
	if flag == "" && in.Agent.Name == config.Auto {
		return os.Hostname()
	}
	return cmp.Or(flag, in.Agent.Name), nil
}

// stopTimeout bounds how long a clean stop may take.
const stopTimeout = 10 * time.Second

func stopping() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), stopTimeout)
}

type directoryCommand struct {
	State  string `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory (default: agent.state_dir of the configuration)."`
	Listen string `placeholder:"URL" help:"Where agents dial: unix:///path, http://127.0.0.1:PORT or https://ADDRESS:PORT (default: a socket in the state directory)."`
	Name   string `default:"directory" help:"Whose certificate it shows at https (default: ${default})."`
}

func (c *directoryCommand) Help() string {
	return "Runs the directory of a cell: an embedded etcd, in the foreground, until Ctrl-C. Records and leases survive a restart. " +
		"Other hosts are let in by https only, and only with a certificate of the cell's CA; `meridian cert issue directory --host HOST` makes the one it needs. " +
		"A cell that has an etcd of its own does not need it."
}

func (c *directoryCommand) Run(std *stdio, all *commands) error {
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	cell := cellFlags{State: c.State}
	if err := cell.fill(loaded.Config); err != nil {
		return err
	}
	ctx, cancel := whileServing(all.logger(std), nothingToReload)
	defer cancel()
	server, err := embedded.Open(ctx, embedded.Options{
		Dir: cell.State, Listen: c.Listen, TLS: cell.security(loaded.Config).FilesOf(cell.State, c.Name), Logger: all.logger(std),
	})
	if err != nil {
		return lacking(err)
	}
	all.ready(std, "directory ready at "+server.Endpoint(), "url", server.Endpoint())
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-server.Failed():
	}
	return errors.Join(failed, closeSoon(server.Close))
}

type peersCommand struct {
	cellFlags
	Name  string `help:"Whose certificate to show to an https directory (default: agent.name of the configuration)."`
	Watch bool   `help:"Go on and show who comes and goes."`
	JSON  bool   `help:"Print JSON: one object, or with --watch one a line."`
}

func (c *peersCommand) Help() string {
	return "Lists the agents of a cell as its directory has them, the engines that each speaks for, and the gateways, which are agents that lend no memory. " +
		"An https directory wants a certificate: --name says whose."
}

func (c *peersCommand) Run(std *stdio, all *commands) error {
	ctx, cancel := untilStopped()
	defer cancel()
	d, err := openCellDirectory(ctx, std, all, &c.cellFlags, c.Name)
	if err != nil {
		return err
	}
	return errors.Join(c.show(ctx, std, d), closeSoon(d.Close))
}

// openCellDirectory dials the directory that flags and configuration mean, as the
// agent of that name.
func openCellDirectory(ctx context.Context, std *stdio, all *commands, flags *cellFlags, as string) (directory.Directory, error) {
	loaded, err := all.load(std)
	if err != nil {
		return nil, err
	}
	if err := flags.fill(loaded.Config); err != nil {
		return nil, err
	}
	name, err := agentName(as, loaded.Config)
	if err != nil {
		return nil, err
	}
	d, err := node.OpenDirectory(ctx, node.DirectoryOptions{
		Endpoints: flags.Directory, StateDir: flags.State, Name: name, TLS: flags.security(loaded.Config), Insecure: flags.Insecure, Prefix: flags.prefix, Logger: all.logger(std),
	})
	if errors.Is(err, trust.ErrNoCertificate) && as == "" {
		hint := "an https directory lets in who has a certificate of the cell: name one of those in the state directory with --name, or make one with `meridian cert issue NAME`"
		return nil, &failure{err: err, hint: hint, status: exitFailure}
	}
	return d, lacking(err)
}

func (c *peersCommand) show(ctx context.Context, std *stdio, d directory.Directory) error {
	if c.Watch {
		return c.follow(ctx, std, d)
	}
	asking, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	snapshot, err := d.List(asking, agent.AgentPrefix)
	if err != nil {
		return err
	}
	records := agentRecords(snapshot.Records)
	if c.JSON {
		return std.writeJSON(map[string]any{"agents": records})
	}
	if len(records) == 0 {
		_, err := fmt.Fprintln(std.out, "no agents")
		return err
	}
	engines, err := d.List(asking, directory.EnginePrefix)
	if err != nil {
		return err
	}
	return peerTable(std.out, records, engines.Records)
}

// shownIncarnation is how much of one tells two lives apart for a person; JSON has all.
const shownIncarnation = 8

func peerTable(out io.Writer, records []agent.AgentRecord, engines []directory.Record) error {
	at := make(map[string][]string)
	for _, record := range engines {
		if e, err := directory.ParseEngineRecord(record); err == nil {
			at[e.Home] = append(at[e.Home], e.ID)
		}
	}
	slices.SortStableFunc(records, func(a, b agent.AgentRecord) int { return cmp.Compare(kindOf(a), kindOf(b)) })
	table := newTable(out, "NAME\tKIND\tENGINES\tFABRICS\tINCARNATION")
	for _, r := range records {
		engines := cmp.Or(strings.Join(slices.Sorted(slices.Values(at[r.Name])), ", "), "–")
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.*s\n", oneLine(r.Name), kindOf(r), oneLine(engines), fabricList(r), shownIncarnation, oneLine(r.Incarnation))
	}
	return table.Flush()
}

// kindOf tells a gateway, which is an agent among agents, from those of hosts.
func kindOf(r agent.AgentRecord) string {
	if isGateway(r.Name) {
		return kindGateway
	}
	return kindAgent
}

func agentRecords(records []directory.Record) []agent.AgentRecord {
	all := []agent.AgentRecord{}
	for _, record := range records {
		if r, err := agent.ParseAgentRecord(record); err == nil {
			all = append(all, r)
		}
	}
	return all
}

// fabricList shows the one address that a person might type; JSON has all.
func fabricList(r agent.AgentRecord) string {
	names := slices.Sorted(maps.Keys(r.Fabrics))
	for i, name := range names {
		if name == "tcp" {
			names[i] += " " + r.Fabrics[name]
		}
	}
	return oneLine(strings.Join(names, ", "))
}

// follow prints who is there, then who comes and goes, until it is stopped.
func (c *peersCommand) follow(ctx context.Context, std *stdio, d directory.Directory) error {
	w, err := d.Watch(ctx, agent.AgentPrefix, 0)
	if err != nil {
		return err
	}
	defer w.Close()
	for e := range w.Events() {
		var err error
		switch e.Kind {
		case directory.Resync, directory.Available:
			for _, r := range agentRecords(e.Records) {
				err = errors.Join(err, c.line(std, "here", r))
			}
		case directory.Put:
			for _, r := range agentRecords([]directory.Record{e.Record}) {
				err = c.line(std, "came", r)
			}
		case directory.Delete:
			err = c.line(std, "gone", agent.AgentRecord{Name: strings.TrimPrefix(e.Record.Key, agent.AgentPrefix)})
		case directory.Unavailable:
			err = c.line(std, "unknown", agent.AgentRecord{Name: "the directory does not answer"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *peersCommand) line(std *stdio, what string, r agent.AgentRecord) error {
	if c.JSON {
		return std.writeJSON(map[string]any{"event": what, "agent": r})
	}
	_, err := fmt.Fprintf(std.out, "%s %-8s %s %s\n", time.Now().Format(time.TimeOnly), what, oneLine(r.Name), fabricList(r))
	return err
}
