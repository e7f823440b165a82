package store

import (
	"context"

	"meridian/member/directory"
	"meridian/member/directory/etcd"
	"meridian/move/agent"
	"meridian/prove/bench"
	"meridian/prove/bench/transfer"
)

// party is one process that takes part in a store: an agent and its directory.
type party struct {
	bench.Opened
	directory directory.Directory
	agent     *agent.Agent
}

// meeting is where the parties of a store meet.
type meeting struct {
	Where string `json:"where"`
	// Dir is for sockets; Endpoint is the directory's.
	Dir      string `json:"dir"`
	Endpoint string `json:"endpoint"`
}

func join(ctx context.Context, name string, m meeting) (_ *party, err error) {
	p := &party{}
	defer p.Unless(ctx, &err)
	if p.directory, err = etcd.Open(ctx, etcd.Options{Endpoints: []string{m.Endpoint}}); err != nil {
		return p, err
	}
	p.Closes(p.directory.Close)
	// Agents learn of one another over tcp, wherever their bytes go.
	fabrics := []agent.Opener{transfer.ForAgents("tcp", m.Dir)}
	if m.Where == sameHost {
		fabrics = append([]agent.Opener{transfer.ForAgents("host", m.Dir)}, fabrics...)
	}
	if p.agent, err = agent.Open(ctx, agent.Options{Name: name, Fabrics: fabrics, Directory: p.directory}); err == nil {
		p.Closes(p.agent.Close)
	}
	return p, err
}
