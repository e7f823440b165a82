package peerquery

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/agent"
)

const (
	// MemberTimeout is how long one member may take to answer all that it is asked at a
	// time: one that hangs is told of, not waited for.
	MemberTimeout = 2 * time.Second
	// askedAtOnce bounds how many members are asked at a time, maxMembers how many
	// at all.
	askedAtOnce = 16
	maxMembers  = 1024
	// maxPages is how many pages of one member's records are looked at.
	maxPages = 8
)

// Unreachable is a member that did not answer, and why.
type Unreachable struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Members are the agents that the directory names, in the order of their names.
func (d *Service) Members(ctx context.Context) ([]kv.Member, error) {
	if d.options.Directory == nil {
		return nil, errors.New("node: without a directory it is not known which members are there to be asked")
	}
	listed, err := d.options.Directory.List(ctx, agent.AgentPrefix)
	if err != nil {
		return nil, err
	}
	var members []kv.Member
	for _, record := range listed.Records {
		r, err := agent.ParseAgentRecord(record)
		if err != nil {
			continue
		}
		id, err := kv.ParseID(r.Incarnation)
		if err == nil && len(members) < maxMembers {
			members = append(members, kv.Member{Name: r.Name, Incarnation: id})
		}
	}
	slices.SortFunc(members, func(a, b kv.Member) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}

// Each has each member asked, several at a time, and waits for them all, which
// takes as long as a deadline or two. Ask is called by several goroutines.
func (d *Service) Each(ctx context.Context, members []kv.Member, ask func(context.Context, kv.Member) error) []Unreachable {
	var wait sync.WaitGroup
	var mu sync.Mutex // protects silent
	var silent []Unreachable
	places := make(chan struct{}, askedAtOnce)
	for _, m := range members {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, MemberTimeout)
			defer cancel()
			if err := ask(ctx, m); err != nil && !errors.Is(err, ErrRefused) {
				mu.Lock()
				defer mu.Unlock()
				silent = append(silent, Unreachable{m.Name, err.Error()})
			}
		})
	}
	wait.Wait()
	slices.SortFunc(silent, func(a, b Unreachable) int { return strings.Compare(a.Name, b.Name) })
	return silent
}

// Pages asks a member for records until it has told all, and hands each over.
func (d *Service) Pages(ctx context.Context, m kv.Member, q Question, take func([]byte)) error {
	for range maxPages {
		a, err := d.Ask(ctx, m, q)
		if err != nil {
			return err
		}
		for _, record := range a.Records {
			take(record)
		}
		if !a.More() || a.Next <= q.After {
			return nil
		}
		q.After = a.Next
	}
	return nil
}
