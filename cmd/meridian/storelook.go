package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"meridian/store"
)

type storeLsCommand struct {
	storeFlags
	timeoutFlag
	tenantFlag
	Prefix     string `arg:"" optional:"" help:"List keys that begin so (default: all)."`
	Owner      string `placeholder:"NAME" help:"List the objects of this owner (default: of all)."`
	AllTenants bool   `help:"List the objects of every tenant."`
	Most       int    `default:"10000" placeholder:"N" help:"List no more than so many (default: ${default})."`
	JSON       bool   `help:"Print one JSON object."`
}

// objectRow is an object as it is listed.
type objectRow struct {
	Key        string `json:"key"`
	Tenant     string `json:"tenant,omitempty"`
	Owner      string `json:"owner"`
	Bytes      uint64 `json:"bytes"`
	Checksum   string `json:"checksum"`
	AgeSeconds uint64 `json:"age_seconds"`
	Readers    uint16 `json:"readers"`
	Priority   uint8  `json:"priority"`
	Pinned     bool   `json:"pinned"`
}

func newObjectRow(o store.Object) objectRow {
	return objectRow{o.Key, o.Tenant, o.Owner, o.Bytes, fmt.Sprintf("%016x", o.Checksum), o.AgeSeconds, o.Readers, o.Priority, o.Pinned}
}

func (c *storeLsCommand) Run(std *stdio, all *commands) error {
	if c.Most <= 0 {
		return invalid("", "--most %d: list at least one", c.Most)
	}
	return c.with(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		wait := newWaiting(std.err, "listing")
		objects, err := s.List(ctx, store.ListOptions{Owner: c.Owner, Prefix: c.Prefix, Tenant: c.Tenant, AllTenants: c.AllTenants, Most: c.Most})
		wait.stop()
		if err == nil && len(s.Owners()) == 0 {
			err = store.ErrUnavailable
		}
		if err != nil {
			return err
		}
		slices.SortFunc(objects, func(a, b store.Object) int {
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key))
		})
		rows := make([]objectRow, len(objects))
		for i, o := range objects {
			rows[i] = newObjectRow(o)
		}
		if c.JSON {
			return std.writeJSON(map[string]any{"objects": rows})
		}
		if len(rows) == 0 {
			_, err := fmt.Fprintln(std.out, "no objects")
			return err
		}
		return c.table(std, rows)
	})
}

func (c *storeLsCommand) table(std *stdio, rows []objectRow) error {
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	tenant := func(text string) string {
		if !c.AllTenants {
			return ""
		}
		return oneLine(text) + "\t"
	}
	fmt.Fprintf(table, "%sKEY\tBYTES\tOWNER\tAGE\tREADERS\tPRIORITY\tPINNED\n", tenant("TENANT"))
	for _, r := range rows {
		fmt.Fprintf(table, "%s%s\t%d\t%s\t%ds\t%d\t%d\t%s\n", tenant(r.Tenant), oneLine(r.Key), r.Bytes, oneLine(r.Owner), r.AgeSeconds, r.Readers, r.Priority, yesNo(r.Pinned))
	}
	return table.Flush()
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

type storeStatCommand struct {
	storeFlags
	timeoutFlag
	tenantFlag
	Key  string `arg:"" optional:"" help:"Tell where this object is (default: how the cache stands)."`
	Wait int    `placeholder:"N" help:"Wait until so many owners serve."`
	JSON bool   `help:"Print one JSON object."`
}

// ownerRow is how an owner stands. USED and the like are of its heap.
type ownerRow struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Rank        int    `json:"rank"`
	Answers     bool   `json:"answers"`
	Term        uint64 `json:"term"`
	HeapUsed    uint64 `json:"heap_used"`
	HeapTotal   uint64 `json:"heap_total"`
	Ready       uint64 `json:"ready"`
	Writing     uint64 `json:"writing"`
	RingDepth   uint64 `json:"ring_depth"`
	Hits        uint64 `json:"hits"`
	Misses      uint64 `json:"misses"`
	Evictions   uint64 `json:"evictions"`
	Reclaims    uint64 `json:"reclaims"`
	Timeouts    uint64 `json:"timeouts"`
	Refused     uint64 `json:"refused"`
	OutOfMemory uint64 `json:"out_of_memory"`
	BytesIn     uint64 `json:"bytes_in"`
	BytesOut    uint64 `json:"bytes_out"`
	Problem     string `json:"problem,omitempty"`
}

func newOwnerRow(o store.OwnerStats) ownerRow {
	row := ownerRow{
		Name: o.Name, Incarnation: o.Incarnation.String(), Rank: o.Rank, Answers: o.Answers, Term: o.Term, HeapUsed: o.HeapUsed, HeapTotal: o.HeapTotal,
		Ready: o.Ready, Writing: o.Writing, RingDepth: o.Waiting, Hits: o.Hits, Misses: o.Misses, Evictions: o.Evictions, Reclaims: o.Reclaims,
		Timeouts: o.Timeouts, Refused: o.Refused, OutOfMemory: o.OutOfMemory, BytesIn: o.BytesIn, BytesOut: o.BytesOut,
	}
	if o.Err != nil {
		row.Problem = o.Err.Error()
	}
	return row
}

// state is in words whether an owner answers.
func (r ownerRow) state() string {
	switch {
	case r.Problem != "":
		return "unreachable: " + oneLine(r.Problem)
	case !r.Answers:
		return "waits for the master"
	}
	return "serves"
}

func (c *storeStatCommand) Run(std *stdio, all *commands) error {
	return c.with(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		if c.Key != "" {
			return explainObject(ctx, std, s, c.Key, c.Tenant, c.JSON)
		}
		wait := newWaiting(std.err, "asking every owner")
		rows, err := c.owners(ctx, s)
		wait.stop()
		if err != nil {
			return err
		}
		master, term := s.Master()
		if c.JSON {
			return std.writeJSON(map[string]any{"master": master, "term": term, "owners": rows})
		}
		return ownerTable(std, master, term, rows)
	})
}

// statPause lies between two questions of stat --wait.
const statPause = 100 * time.Millisecond

// owners is how each stands, once as many serve as are waited for.
func (c *storeStatCommand) owners(ctx context.Context, s *store.Store) ([]ownerRow, error) {
	for {
		stats, err := s.Stats(ctx)
		if err != nil {
			return nil, err
		}
		rows, serving := make([]ownerRow, len(stats.Owners)), 0
		for i, o := range stats.Owners {
			if rows[i] = newOwnerRow(o); rows[i].state() == "serves" {
				serving++
			}
		}
		if serving >= c.Wait && len(rows) > 0 {
			return rows, nil
		}
		if c.Wait == 0 {
			return nil, store.ErrUnavailable
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: of %d owners %d serve, not %d", store.ErrUnavailable, len(rows), serving, c.Wait)
		case <-time.After(statPause):
		}
	}
}

func ownerTable(std *stdio, master string, term uint64, rows []ownerRow) error {
	if master == "" {
		fmt.Fprint(std.out, "no master\n\n")
	} else {
		fmt.Fprintf(std.out, "master %s, term %d\n\n", oneLine(master), term)
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OWNER\tRANK\tUSED\tOF BYTES\tOBJECTS\tWRITING\tHITS\tMISSES\tEVICTED\tRECLAIMED\tNO ROOM\tSTATE")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%d\t%.1f%%\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", oneLine(r.Name), r.Rank, 100*float64(r.HeapUsed)/float64(max(1, r.HeapTotal)), r.HeapTotal,
			r.Ready, r.Writing, r.Hits, r.Misses, r.Evictions, r.Reclaims, r.OutOfMemory, r.state())
	}
	return table.Flush()
}
