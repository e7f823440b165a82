package main

import (
	"context"
	"os"

	"meridian/prove/bench"
	storebench "meridian/prove/bench/store"
)

type benchStore struct {
	Table    string       `default:"objects" enum:"objects,scaling,parts" placeholder:"NAME" help:"What to measure: objects (whole puts and gets beside others), scaling (producers and owners, asking for room and taking it), parts (what a put and a get are made of); default ${default}."`
	Object   []bench.Size `placeholder:"SIZE" help:"Sizes of objects; default 4KiB,64KiB,1MiB,16MiB, of scaling 512KiB,1MiB,2MiB,4MiB,8MiB."`
	Op       []string     `default:"put,get" placeholder:"OP" help:"Operations: put, get; default both."`
	Clients  []int        `default:"1,4" placeholder:"N" help:"Clients that ask at a time, or producers; default ${default}."`
	Where    []string     `default:"same-host,tcp" placeholder:"PLACE" help:"Where clients are: same-host, tcp; default both."`
	Owners   []int        `default:"1,2" placeholder:"N" help:"Owners, of scaling; default ${default}."`
	Page     []bench.Size `default:"128KiB,256KiB,512KiB" placeholder:"SIZE" help:"Pages of objects, of scaling; default ${default}."`
	Objects  int          `default:"1000000" placeholder:"N" help:"Objects of the arena, of parts; default ${default}."`
	Total    bench.Size   `default:"128MiB" placeholder:"SIZE" help:"Bytes that one round moves, at most, and of small objects no more than 4096; default ${default}."`
	Rounds   int          `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	Peers    []string     `default:"auto" placeholder:"NAME" help:"Who to measure objects beside: auto for all that are installed, none, or some of ${store_peers}; default ${default}."`
	JSON     rowsFile     `placeholder:"[FILE]" help:"Print the rows as JSON instead of the table; with FILE, write them there beside it."`
	Dir      string       `type:"existingdir" placeholder:"DIR" help:"Where sockets are made (default: the system's directory for temporary files)."`
	PeersDir string       `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make peers put Mooncake; default ${default}."`
}

func (c *benchStore) Help() string {
	return "An owner in a process of its own, with the master and a directory; clients in this one. Everybody puts or gets the same objects in turn, round by " +
		"round, and what comes back is compared with what was put. Beside: memcpy by as many threads as there are clients; a plain transfer of each object, with as " +
		"many in flight; Mooncake's store over tcp, with a process that keeps objects and one that asks; redis-server, over a Unix socket or over loopback. " +
		"Ratios from one run can be compared; figures from two runs can not."
}

func (c *benchStore) Run(std *stdio) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return measure(std, "bench store", c.measure, storebench.Options{
		Objects: c.Object, Ops: c.Op, Clients: c.Clients, Where: c.Where, Total: c.Total, Rounds: c.Rounds, Peers: c.Peers, PeersDir: c.PeersDir,
		Dir: c.Dir, ServeCommand: []string{self, "bench", "__serve"}, OwnCommand: []string{self, "bench", "__own"},
		Setting: settingOf(std),
	}, c.JSON)
}

func (c *benchStore) measure(ctx context.Context, o storebench.Options) (findings, error) {
	switch c.Table {
	case "parts":
		return storebench.RunParts(ctx, storebench.PartsOptions{
			Options: bench.Options{Rounds: c.Rounds, Setting: o.Setting}, Objects: c.Objects, Dir: o.Dir, OwnCommand: o.OwnCommand,
		})
	case "scaling":
		if len(o.Objects) == 0 {
			o.Objects = sizes("512KiB", "1MiB", "2MiB", "4MiB", "8MiB")
		}
		return storebench.RunScaling(ctx, storebench.ScalingOptions{Options: o, Owners: c.Owners, Pages: c.Page})
	}
	if len(o.Objects) == 0 {
		o.Objects = sizes("4KiB", "64KiB", "1MiB", "16MiB")
	}
	return storebench.Run(ctx, o)
}

// sizes reads sizes that are known to be some.
func sizes(texts ...string) (all []bench.Size) {
	for _, text := range texts {
		var s bench.Size
		if err := s.UnmarshalText([]byte(text)); err != nil {
			panic(err)
		}
		all = append(all, s)
	}
	return all
}

// benchOwn is an owner that is measured; bench store starts it.
type benchOwn struct{}

func (c *benchOwn) Run(std *stdio) error { return storebench.Own(std.in, std.out) }
