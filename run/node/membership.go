package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"meridian/member/trust"
	"meridian/move/agent/peerquery"
)

// membership is a gateway's place among the agents of its cell: an agent that lends
// no memory, asks the others what they remember, and tells them of requests. A
// gateway that cannot have it serves all the same.
type membership struct {
	stop   context.CancelFunc
	wait   sync.WaitGroup
	joined atomic.Pointer[Agent]
	why    atomic.Pointer[string] // it has not joined
}

// ownName is what a gateway is called among agents, where it has a certificate.
const ownName = "gateway"

// rejoinAfter is how long is waited before joining is tried again.
const rejoinAfter = 5 * time.Second

// join begins to join, in the background: requests do not wait for it.
func (m *membership) join(o GatewayOptions, book peerquery.Source) {
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.wait.Go(func() {
		for {
			n, err := OpenAgent(ctx, o.asMember(book))
			if err == nil {
				m.joined.Store(n)
				return
			}
			if ctx.Err() != nil {
				return
			}
			why := fmt.Sprintf("the gateway has not joined the agents of its cell: %v; with TLS it needs a certificate, `meridian cert issue %s`", err, ownName)
			if m.why.Swap(&why) == nil {
				o.Logger.Warn("agents cannot be asked for what they remember; requests are served all the same", "error", err)
			}
			select {
			case <-time.After(rejoinAfter):
			case <-ctx.Done():
				return
			}
		}
	})
}

// asMember is the agent that a gateway is.
func (o *GatewayOptions) asMember(book peerquery.Source) AgentOptions {
	security := trust.TLS{Mode: o.TLSOfAgents.Mode, Files: trust.Files{CA: o.TLSOfAgents.Files.CA}}
	name := ownName
	if there, err := security.HasCertificate(o.StateDir, ownName); err == nil && !there {
		var suffix [4]byte
		rand.Read(suffix[:])
		name = fmt.Sprintf("%s-%x", ownName, suffix)
	}
	hostOf := func(address string) string {
		if host, _, err := net.SplitHostPort(address); err == nil {
			return host
		}
		return address
	}
	host := cmp.Or(hostOf(o.AgentListen), "127.0.0.1")
	return AgentOptions{
		Name: name, Fabrics: []string{"host", "tcp"}, Listen: net.JoinHostPort(host, "0"), Advertise: hostOf(o.AgentAdvertise), Streams: 1,
		TLS: security, Insecure: o.InsecureDirectory, StateDir: o.StateDir, Directory: o.DirectoryEndpoints, DirectoryPrefix: o.DirectoryPrefix, Build: o.Build, Logger: o.Logger, book: book,
	}
}

// errNotJoined means that a gateway is no member of a cell, or not yet.
var errNotJoined = errors.New("the gateway has not joined the agents of its cell; engines that are listed have none that could be asked")

// Member is the agent by which the gateway asks others.
func (m *membership) Member() (*Agent, error) {
	if n := m.joined.Load(); n != nil {
		return n, nil
	}
	if why := m.why.Load(); why != nil {
		return nil, errors.New(*why)
	}
	return nil, errNotJoined
}

// leave ends the membership.
func (m *membership) leave(ctx context.Context) error {
	if m.stop == nil {
		return nil
	}
	m.stop()
	m.wait.Wait()
	return closeOpened(ctx, m.joined.Load())
}
