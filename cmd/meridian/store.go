package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"meridian/keep/store"
	"meridian/keep/store/disk"
	"meridian/keep/store/owner"
	"meridian/keep/store/s3"
	"meridian/member/directory"
	"meridian/prove/bench"
	"meridian/run/config"
	"meridian/run/node"
)

// storeCommands are those of the object cache.
type storeCommands struct {
	Serve storeServeCommand `cmd:"" help:"Keep objects in the memory of this host, until Ctrl-C."`
	Put   storePutCommand   `cmd:"" help:"Store a file, or standard input, under a key."`
	Get   storeGetCommand   `cmd:"" help:"Get an object."`
	Rm    storeRmCommand    `cmd:"" help:"Remove objects."`
	Ls    storeLsCommand    `cmd:"" help:"List objects."`
	Stat  storeStatCommand  `cmd:"" help:"Tell how the cache stands, or where an object is."`
	Evict storeEvictCommand `cmd:"" help:"Let objects go until owners have room."`
	Push  storePushCommand  `cmd:"" help:"Store a payload as an MRDN frame, and print the handle that pulls it."`
	Pull  storePullCommand  `cmd:"" help:"Get a payload that was pushed."`
	Scrub storeScrubCommand `cmd:"" help:"Read every object and check its sums; what is broken is dropped."`
}

func (c *storeCommands) Help() string {
	return "The object cache of a cell: keys with values that never change, in the memory of its owners. docs/store.md tells what it promises.\n\n" +
		"  meridian directory &                         # unless a cell runs\n" +
		"  meridian store serve --name a --bytes 1GiB &\n" +
		"  meridian store put greeting hello.txt\n" +
		"  meridian store ls\n" +
		"  meridian store get greeting\n" +
		"  meridian store stat\n"
}

// storeFlags are of the commands that ask the object cache something.
type storeFlags struct {
	cellFlags
	Name string `help:"Name of the agent that asks; with TLS, one that has a certificate and does not run (default: one made up for this command)."`
}

// timeoutFlag says how long an operation may take.
type timeoutFlag struct {
	Timeout time.Duration `default:"30s" placeholder:"TIME" help:"Longest that it may take (default: ${default})."`
}

// joinTimeout bounds how long it may take to join a cell.
const joinTimeout = 30 * time.Second

// tenantFlag says whose keys are meant.
type tenantFlag struct {
	Tenant string `placeholder:"NAME" help:"Whose keys are meant (default: store.tenant of the configuration)."`
}

// with joins the cell as a client of the object cache for as long as do takes; a
// timeout of 0 is none.
func (c *storeFlags) with(std *stdio, all *commands, timeout time.Duration, do func(context.Context, *store.Store) error) error {
	return c.visiting(std, all, timeout, func(ctx context.Context, n *node.Agent) error { return do(ctx, n.Store) })
}

// visiting is with, for what needs the whole agent.
func (c *storeFlags) visiting(std *stdio, all *commands, timeout time.Duration, do func(context.Context, *node.Agent) error) error {
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	ctx, cancel := untilStopped()
	defer cancel()
	n, err := c.join(ctx, std, all, &node.Store{Tenant: tenantOf(loaded.Config)})
	if err != nil {
		return err
	}
	bounded, expire := ctx, func() {}
	if timeout > 0 {
		bounded, expire = context.WithTimeout(ctx, timeout)
	}
	defer expire()
	if err = do(bounded, n); err != nil {
		err = advise(n.Store, err)
	}
	return errors.Join(err, closeSoon(n.Close))
}

// withOwners is with, for what only an owner can do: where the directory names none that is
// said at once. A program waits for one, a person asks again.
func (c *storeFlags) withOwners(std *stdio, all *commands, timeout time.Duration, do func(context.Context, *store.Store) error) error {
	return c.with(std, all, timeout, func(ctx context.Context, s *store.Store) error {
		if _, err := ownersNamed(s, ""); err != nil {
			return err
		}
		return do(ctx, s)
	})
}

// join starts an agent for one question.
func (c *storeFlags) join(ctx context.Context, std *stdio, all *commands, part *node.Store) (*node.Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	wait := newWaiting(std.err, "joining the cell")
	defer wait.stop()
	n, err := shortAgent(ctx, std, all, agentFlags{cellFlags: c.cellFlags, Name: c.Name}, "store", agentParts{store: part})
	return n, noDirectory(err)
}

// noDirectory adds to err what helps where no directory answers.
func noDirectory(err error) error {
	if !errors.Is(err, directory.ErrUnavailable) {
		return err
	}
	return &failure{err: err, hint: "`meridian directory` starts one, `meridian up` a whole cell; --state and --directory say which is meant", status: exitFailure}
}

func tenantOf(in *config.Config) string { return unless(config.None, in.Store.Tenant) }

// advise adds what helps to an error of the object cache.
func advise(s *store.Store, err error) error {
	var hint string
	var hinted interface{ Hint() string }
	master, _ := s.Master()
	switch {
	case errors.As(err, &hinted):
		return err
	case len(s.Owners()) == 0:
		err, hint = errors.New("no owner keeps objects in this cell"), "`meridian store serve` starts an owner; one that was just started needs a moment"
	case errors.Is(err, store.ErrBusy):
		hint = "another writes that key: wait for it; a writer that died is in the way until store.write_timeout_ms is over"
	case errors.Is(err, store.ErrOverloaded):
		hint = "the owner had too much to do all the while: try again, with less at a time, or add an owner"
	case errors.Is(err, store.ErrStale):
		hint = "it took longer than the owner lets a writer take: raise store.write_timeout_ms where it is kept; nothing was stored"
	case errors.Is(err, store.ErrTorn):
		hint = "bytes changed in memory or on the way; put it again, and look at both hosts if that comes back"
	case errors.Is(err, store.ErrCollision):
		hint = "two keys have one hash: choose another"
	case errors.Is(err, store.ErrMissing):
		hint = "`meridian store ls` lists what there is; keys belong to tenants, see --tenant"
	case errors.Is(err, store.ErrExists):
		hint = "values never change; `meridian store rm KEY` makes room for another"
	case errors.Is(err, store.ErrFull):
		hint = "`meridian store stat` tells how full owners are, `meridian store evict --below 0.5` makes room; what is pinned or read stays"
	case errors.Is(err, store.ErrTooLarge):
		hint = "an object must fit into one owner: start one with more --bytes"
	case errors.Is(err, store.ErrName):
		return invalid("", "%w", err)
	case errors.Is(err, store.ErrUnavailable) && master == "":
		hint = "no master is elected: one of the agents must be allowed to (store.master), and the directory must answer"
	case errors.Is(err, store.ErrUnavailable):
		hint = "`meridian store stat` tells which owners answer; after a master was lost it takes seconds until another is elected"
	}
	return &failure{err: err, hint: hint, status: exitFailure}
}

type storeServeCommand struct {
	agentFlags
	doorFlags
	Bytes    *bench.Size `placeholder:"SIZE" help:"Memory for objects (default: store.bytes of the configuration)."`
	Policy   string      `enum:",lru,fifo,priority" default:"" placeholder:"NAME" help:"Which objects leave first: lru, fifo or priority (default: store.policy of the configuration)."`
	NoMaster bool        `help:"Never become the master (also: store.master of the configuration)."`
}

func (c *storeServeCommand) Help() string {
	return "Runs an agent that keeps objects, in the foreground, until Ctrl-C; what it keeps is gone then. It may become the master, who knows which owner has a key: " +
		"with two owners or more another takes over when it is lost. It needs a directory (`meridian directory`). " +
		"Programs on this host come in at its door (--door), from Python with meridian.store. " +
		"`meridian agent` is the same with engines in mind: it keeps objects where the configuration has store.enabled.\n\n" +
		"  meridian store serve --name a --bytes 8GiB\n"
}

// storePart is what flags and configuration say of an owner; bytes 0 keeps nothing.
func storePart(in *config.Config, bytes uint64, policy string, candidate bool) (*node.Store, error) {
	part := &node.Store{Candidate: candidate && in.Store.Master, DirectMap: in.Store.DirectMap, Tenant: tenantOf(in), Prefixes: node.Prefixes{
		BlockTokens: int(in.Store.BlockTokens), FindWait: time.Duration(in.Store.FindWaitUs) * time.Microsecond,
		FindTimeout:      time.Duration(in.Store.FindTimeoutMs) * time.Millisecond,
		Replicas:         int(in.Store.Replicas),
		MaxBytesInFlight: max(1, uint64(in.Store.KeepBytesInFlight)), // nothing is as small as that: 0 keeps none
	}}
	if bytes == 0 {
		return part, nil
	}
	leaves, err := owner.ParsePolicy(cmp.Or(policy, in.Store.Policy))
	if err != nil {
		return nil, err
	}
	part.Owner = &store.OwnerOptions{
		Bytes: bytes, PageSize: uint32(in.Store.PageBytes), Policy: leaves, High: float64(in.Store.HighWatermark) / 100, Low: float64(in.Store.LowWatermark) / 100, TenantQuota: float64(in.Store.TenantQuota) / 100,
		WriteTimeout: time.Duration(in.Store.WriteTimeoutMs) * time.Millisecond,
	}
	return part, tiersOf(in, part)
}

// tiersOf adds what the configuration says of tiers.
func tiersOf(in *config.Config, part *node.Store) error {
	if d := in.Store.Disk; d.Dir != config.None {
		part.Disk = &disk.Options{Dir: d.Dir, Bytes: uint64(d.Bytes), Timeout: time.Duration(d.TimeoutMs) * time.Millisecond}
	}
	if o := in.Store.S3; o.Endpoint != config.None {
		at, err := url.Parse(o.Endpoint)
		if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || strings.Trim(at.Path, "/") != "" {
			return invalid("store.s3.endpoint is http://host:port or https://host", "%q is no address of an S3 server", o.Endpoint)
		}
		part.S3 = &s3.Options{
			Endpoint: at.Host, Secure: at.Scheme == "https", Bucket: o.Bucket, Prefix: o.Prefix, Region: o.Region, Bytes: uint64(o.Bytes),
			Timeout: time.Duration(o.TimeoutMs) * time.Millisecond, RequestsPerSecond: uint64(o.RequestsPerSecond), BytesPerSecond: uint64(o.BytesPerSecond),
		}
	}
	return nil
}

// sizeOrNone is a size that may also be 0: none.
type sizeOrNone struct{ bench.Size }

// UnmarshalText reads a size, or 0.
func (s *sizeOrNone) UnmarshalText(text []byte) error {
	if string(text) == "0" {
		s.Size = bench.Size{Text: "0"}
		return nil
	}
	return s.Size.UnmarshalText(text)
}

// sizeOr is what a flag says, else the configuration.
func sizeOr(flag *bench.Size, configured int64) bench.Size {
	if flag != nil {
		return *flag
	}
	return bench.Size{Bytes: uint64(configured), Text: fmt.Sprintf("%d bytes", configured)}
}

func (c *storeServeCommand) Run(std *stdio, all *commands) error {
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	bytes := sizeOr(c.Bytes, loaded.Config.Store.Bytes)
	if bytes.Bytes == 0 {
		return invalid("say how much with --bytes, as in --bytes 1GiB", "an owner without memory keeps nothing")
	}
	part, err := storePart(loaded.Config, bytes.Bytes, c.Policy, !c.NoMaster)
	if err != nil {
		return err
	}
	ctx, cancel := whileServing(all.logger(std), nothingToReload)
	defer cancel()
	n, err := c.open(ctx, std, all, agentParts{door: c.options(loaded.Config, all.logger(std)), store: part})
	if err != nil {
		return noDirectory(err)
	}
	all.ready(std, fmt.Sprintf("store %s ready (%s): %s for objects, metrics at %s\nprograms on this host come in at %s\ntry: meridian store put KEY FILE --state %s",
		n.Name(), n.Proof(), bytes, metricsPage(n), n.Door.Socket(), quoted(c.State)), "agent", n.Name(), "metrics", metricsPage(n), "socket", n.Door.Socket())
	<-ctx.Done()
	return closeSoon(n.Close)
}
