package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"meridian/keep/store"
)

// objectStory is what there is to tell of an object.
type objectStory struct {
	Key    string `json:"key"`
	Tenant string `json:"tenant,omitempty"`
	Found  bool   `json:"found"`
	// Listed is how its owner describes it; nil while it does not.
	Listed   *objectRow `json:"object,omitempty"`
	Owner    string     `json:"owner,omitempty"`
	Rank     int        `json:"rank"`
	Bytes    uint64     `json:"bytes,omitempty"`
	Checksum string     `json:"checksum,omitempty"`
	KeyHash  string     `json:"key_hash,omitempty"`
	Header   uint32     `json:"header"`
	Epoch    uint32     `json:"epoch"`
	Offset   uint64     `json:"offset"`
	PageSize uint32     `json:"page_size,omitempty"`
	// Why says what is known about why there is none.
	Why []string `json:"why,omitempty"`
}

// mostNamesakes bounds how many keys with the same beginning are looked through.
const mostNamesakes = 10000

// tellObject finds out what there is to tell. It asks for the listing first: to be
// located counts as use.
func tellObject(ctx context.Context, s *store.Store, key, tenant string) (objectStory, error) {
	story := objectStory{Key: key, Tenant: tenant, Rank: -1}
	listed, err := s.List(ctx, store.ListOptions{Prefix: key, Tenant: tenant, Most: mostNamesakes})
	if err != nil {
		return story, err
	}
	for _, o := range listed {
		if o.Key == key {
			row := newObjectRow(o)
			story.Listed = &row
		}
	}
	o := store.LocateOptions{Tenant: tenant}
	if story.Listed != nil {
		o.Preferred = story.Listed.Owner
	}
	at, err := s.Locate(ctx, key, o)
	if errors.Is(err, store.ErrMissing) {
		story.Listed = nil // it left meanwhile
		return story, story.miss(ctx, s)
	}
	if err != nil {
		return story, err
	}
	story.Found, story.Owner, story.Rank, story.Bytes, story.Header, story.Epoch, story.Offset = true, at.Owner, at.Rank, at.Bytes, at.Header, at.Epoch, at.Offset
	story.Checksum, story.KeyHash, story.PageSize = fmt.Sprintf("%016x", at.Checksum), fmt.Sprintf("%016x", at.KeyHash), at.PageSize
	return story, nil
}

// miss says what is known about why an object is not there.
func (o *objectStory) miss(ctx context.Context, s *store.Store) error {
	status, err := s.Status(ctx)
	if err != nil {
		return err
	}
	o.Why = append(o.Why, fmt.Sprintf("master %s of term %d knows no owner of it", oneLine(status.Master), status.Term))
	var evicted uint64
	for _, each := range status.Owners {
		if evicted += each.Evictions; !each.Serves() {
			o.Why = append(o.Why, fmt.Sprintf("owner %s cannot be asked: %s", oneLine(each.Name), ownerState(each)))
		}
	}
	left := "it was never put by this tenant, was removed, or was kept by an owner that has ended"
	if evicted > 0 {
		left = fmt.Sprintf("%s; or it was evicted, as %d objects were by the owners that run", left, evicted)
	}
	o.Why = append(o.Why, left)
	return nil
}

// explainObject tells of an object. One that is not there is an error, which says why.
func explainObject(ctx context.Context, std *stdio, s *store.Store, key, tenant string, asJSON bool) error {
	wait := newWaiting(std.err, "looking for "+oneLine(key))
	story, err := tellObject(ctx, s, key, tenant)
	wait.stop()
	if err != nil {
		return err
	}
	var missing error
	if !story.Found {
		missing = fmt.Errorf("%w: %s: %s", store.ErrMissing, oneLine(key), strings.Join(story.Why, "; "))
	}
	switch {
	case asJSON:
		return errors.Join(std.writeJSON(story), missing)
	case missing != nil:
		return missing
	}
	return story.table(std)
}

func (o *objectStory) table(std *stdio) error {
	fmt.Fprintln(std.out, oneLine(o.Key))
	table := newTable(std.out, "")
	row := func(name, format string, args ...any) { fmt.Fprintf(table, "  "+name+"\t"+format+"\n", args...) }
	if o.Tenant != "" {
		row("tenant", "%s", oneLine(o.Tenant))
	}
	row("owner", "%s, rank %d", oneLine(o.Owner), o.Rank)
	row("bytes", "%d", o.Bytes)
	row("checksum", "%s", o.Checksum)
	row("key hash", "%s", o.KeyHash)
	row("header", "%d, epoch %d", o.Header, o.Epoch)
	row("offset", "%d", o.Offset)
	row("page", "%d bytes", o.PageSize)
	if o.Listed != nil {
		row("age", "%d s since it was last asked for", o.Listed.AgeSeconds)
		row("readers", "%d", o.Listed.Readers)
		row("priority", "%d", o.Listed.Priority)
		row("pinned", "%s", yesNo(o.Listed.Pinned))
	}
	return table.Flush()
}
