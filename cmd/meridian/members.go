package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/member/directory"
	"meridian/move/agent"
	"meridian/see/targets"
	"meridian/serve/gateway"
)

// Kinds of members.
const (
	kindAgent   = "agent"
	kindGateway = "gateway"
	kindEngine  = "engine"
)

// member is an agent, a gateway or an engine that belongs to a cell, as its directory and
// its gateways know it, also where `up` did not start it.
type member struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Role string `json:"role,omitempty"`
	// Agent is the one that speaks for an engine.
	Agent string `json:"agent,omitempty"`
	Host  string `json:"host,omitempty"`
	URL   string `json:"url,omitempty"`
	// Listed: a gateway has it from its configuration, and the directory does not know it.
	Listed bool `json:"listed,omitempty"`
	// Up is whether it answers; of an agent, whether its record stands.
	Up      bool   `json:"up"`
	Problem string `json:"problem,omitempty"`
}

// askMember is how long a member may take to say how it is, and all of them together.
const askMember = 2 * time.Second

// membersOf asks a directory who belongs to a cell, and each engine and gateway how it is.
func membersOf(ctx context.Context, d directory.Directory) ([]member, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askMember)
	defer cancel()
	agents, err := d.List(ctx, agent.AgentPrefix)
	if err != nil {
		return nil, err
	}
	engines, err := d.List(ctx, directory.EnginePrefix)
	if err != nil {
		return nil, err
	}
	known, err := targets.List(ctx, d)
	if err != nil {
		return nil, err
	}
	hosts := make(map[string]string)
	all := []member{}
	for _, t := range known {
		switch base := strings.TrimSuffix(t.URL, "/metrics"); t.Kind {
		case kindAgent:
			hosts[t.Name] = t.Host
		case kindGateway:
			all = append(all, member{Kind: kindGateway, Name: t.Name, Host: t.Host, URL: base, Problem: t.Unreachable})
		}
	}
	for _, r := range agentRecords(agents.Records) {
		if !isGateway(r.Name) {
			all = append(all, member{Kind: kindAgent, Name: r.Name, Host: hosts[r.Name], Up: true})
		}
	}
	for _, record := range engines.Records {
		if r, err := directory.ParseEngineRecord(record); err == nil {
			all = append(all, member{Kind: kindEngine, Name: r.ID, Role: r.Role, Agent: r.Home, Host: hosts[r.Home], URL: strings.TrimSuffix(r.URL, "/")})
		}
	}
	all = askAll(ctx, all)
	slices.SortStableFunc(all, func(a, b member) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// isGateway reports whether an agent is how a gateway belongs to its cell: it lends no
// memory, and is called so by itself.
func isGateway(agent string) bool {
	return agent == kindGateway || strings.HasPrefix(agent, kindGateway+"-")
}

const (
	// maxAsked bounds how many are asked at a time.
	maxAsked = 32
	// maxListed bounds how many engines one gateway has from its configuration.
	maxListed = 1 << 10
)

// askAll asks engines whether they answer, and gateways for the engines that they have
// from their configuration.
func askAll(ctx context.Context, all []member) []member {
	ctx, cancel := context.WithTimeout(ctx, askMember)
	defer cancel()
	listed := make([][]member, len(all))
	var asked sync.WaitGroup
	places := make(chan struct{}, maxAsked)
	for i := range all {
		m := &all[i]
		if m.Problem != "" || m.Kind == kindAgent {
			continue
		}
		asked.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			switch {
			case m.Kind == kindGateway:
				listed[i] = m.askGateway(ctx)
			case m.URL == "":
				m.Up = true // it is not reached by HTTP, and its agent keeps its record
			default:
				m.note(getFrom(ctx, m.URL+"/health", nil))
			}
		})
	}
	asked.Wait()
	known := make(map[string]bool)
	for _, m := range all {
		known[m.URL] = true
	}
	for _, more := range listed {
		for _, m := range more {
			if !known[m.URL] {
				known[m.URL] = true
				all = append(all, m)
			}
		}
	}
	return all
}

func (m *member) note(err error) {
	if m.Up = err == nil; err != nil {
		m.Problem = err.Error()
	}
}

// askGateway takes from a gateway's admin listener what its directory does not know. One
// that shows nothing but its metrics here is up all the same.
func (m *member) askGateway(ctx context.Context) (listed []member) {
	var known struct{ Engines []gateway.EngineState }
	err := getFrom(ctx, m.URL+"/debug/engines", &known)
	if answered := (*statusError)(nil); errors.As(err, &answered) {
		err = nil // it is there, and asks for a key, or shows its metrics only
	}
	m.note(err)
	for _, e := range known.Engines {
		if e.Listed && len(listed) < maxListed {
			listed = append(listed, member{Kind: kindEngine, Name: e.ID, Role: e.Role, Agent: e.Agent, URL: e.URL, Listed: true, Up: e.Up, Problem: e.Problem})
		}
	}
	return listed
}

// maxMemberBytes bounds what a member says of itself.
const maxMemberBytes = 4 << 20

func getFrom(ctx context.Context, where string, v any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return err
	}
	response, err := memberClient.Do(request)
	if err != nil {
		var asked *url.Error
		if errors.As(err, &asked) {
			err = asked.Err // the address is in the table
		}
		return fmt.Errorf("it does not answer: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMemberBytes))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return &statusError{response.Status}
	case v == nil:
		return nil
	}
	return json.Unmarshal(body, v)
}

// statusError is an answer that is none of what was asked for.
type statusError struct{ status string }

func (e *statusError) Error() string { return "it answers " + e.status }

// memberClient tells nothing and believes little, so it asks no certificate for its name.
var memberClient = &http.Client{Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}

// unknownTo leaves out who is among the parts that `meridian up` runs.
func unknownTo(parts map[string]bool, all []member) []member {
	return slices.DeleteFunc(all, func(m member) bool {
		switch m.Kind {
		case kindAgent:
			return parts["agent-"+m.Name]
		case kindGateway:
			return parts["at "+m.URL]
		}
		return parts[m.Name] || parts["at "+m.URL]
	})
}

func memberTable(out io.Writer, all []member) error {
	table := newTable(out, "KIND\tNAME\tROLE\tAGENT\tHOST\tSTATE\tURL")
	for _, m := range all {
		state := "up"
		if !m.Up {
			state = "down"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Kind, oneLine(m.Name), oneLine(m.Role), oneLine(m.Agent), oneLine(m.Host), state, oneLine(m.URL))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, m := range all {
		if m.Problem != "" {
			fmt.Fprintf(out, "%s %s: %s\n", m.Kind, oneLine(m.Name), oneLine(m.Problem))
		}
	}
	return nil
}
