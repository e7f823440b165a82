package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"meridian/keep/store"
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

func (c *storeLsCommand) Help() string {
	return "Lists keys with their sizes and owners, and how long ago each was last asked for.\n\n  meridian store ls\n  meridian store ls model/ --owner a\n"
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
		if _, err := ownersNamed(s, c.Owner); err != nil {
			return err
		}
		wait := newWaiting(std.err, "listing")
		objects, err := s.List(ctx, store.ListOptions{Owner: c.Owner, Prefix: c.Prefix, Tenant: c.Tenant, AllTenants: c.AllTenants, Most: c.Most})
		wait.stop()
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
	table := newTable(std.out, "")
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

func (c *storeStatCommand) Help() string {
	return "Tells who the master is, how full owners are and whether they serve; with a key, where that object lies. Each owner: " +
		"USED of its heap, OBJECTS that can be got, WRITING: those that are being written, EVICTED to make room, RECLAIMED from writers that died, NO ROOM: puts that found none. " +
		"Each tier below its memory: DROPPED, what it was not given, for too much waited or it was left alone; FAILED reads and writes; SLOW: no answer in time; BROKEN: objects whose bytes had changed.\n\n" +
		"  meridian store stat\n  meridian store stat --wait 2    # until two owners serve\n  meridian store stat model/block-7\n"
}

// ownerState is in words whether an owner answers.
func ownerState(o store.OwnerStatus) string {
	switch {
	case o.Problem != "":
		return "unreachable: " + oneLine(o.Problem)
	case !o.Answers:
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
		status, err := c.owners(ctx, s)
		wait.stop()
		if err != nil {
			return err
		}
		if c.JSON {
			return std.writeJSON(status)
		}
		return cacheTable(std, status)
	})
}

// statPause lies between two questions of stat --wait.
const statPause = 100 * time.Millisecond

// owners is how each stands, once as many serve as are waited for.
func (c *storeStatCommand) owners(ctx context.Context, s *store.Store) (*store.Status, error) {
	for {
		status, err := s.Status(ctx)
		if err != nil {
			return nil, err
		}
		if status.Serving() >= c.Wait && len(status.Owners) > 0 {
			return status, nil
		}
		if c.Wait == 0 {
			return nil, store.ErrUnavailable
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: of %d owners %d serve, not %d", store.ErrUnavailable, len(status.Owners), status.Serving(), c.Wait)
		case <-time.After(statPause):
		}
	}
}

func cacheTable(std *stdio, status *store.Status) error {
	if status.Master == "" {
		fmt.Fprint(std.out, "no master\n\n")
	} else {
		fmt.Fprintf(std.out, "master %s, term %d\n\n", oneLine(status.Master), status.Term)
	}
	table := newTable(std.out, "OWNER\tRANK\tUSED\tOF BYTES\tOBJECTS\tWRITING\tHITS\tMISSES\tEVICTED\tRECLAIMED\tNO ROOM\tSTATE")
	for _, o := range status.Owners {
		fmt.Fprintf(table, "%s\t%d\t%.1f%%\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", oneLine(o.Name), o.Rank, 100*float64(o.HeapUsed)/float64(max(1, o.HeapTotal)), o.HeapTotal,
			o.Ready, o.Writing, o.Hits, o.Misses, o.Evictions, o.Reclaims, o.OutOfMemory, ownerState(o))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return tierTable(std, status)
}

// tierTable shows what owners have below their memory, if one has something.
func tierTable(std *stdio, status *store.Status) error {
	table := newTable(std.out, "")
	headed := false
	for _, o := range status.Owners {
		for _, t := range o.Tiers {
			if !headed {
				fmt.Fprintln(table, "\nOWNER\tTIER\tUSED\tOF BYTES\tOBJECTS\tHITS\tMISSES\tDROPPED\tFAILED\tSLOW\tBROKEN\tSTATE")
				headed = true
			}
			state := "works"
			if t.Down {
				state = "down: left alone after failures, or not open yet"
			}
			fmt.Fprintf(table, "%s\t%s\t%.1f%%\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", oneLine(o.Name), oneLine(t.Name), 100*float64(t.Bytes)/float64(max(1, t.Limit)), t.Limit,
				t.Objects, t.Hits, t.Misses, t.PutsDropped, t.Failed+t.PutsFailed, t.Slow, t.Broken, state)
		}
	}
	return table.Flush()
}
