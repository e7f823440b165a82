package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/fabric/file"
	"meridian/move/fabric/host"
	"meridian/move/fabric/tcp"
	"meridian/move/mem/vram"
)

// FabricNames lists what an agent can move bytes with, the fastest first.
func FabricNames() []string { return []string{"host", "file", "tcp"} }

// openers turns the names of fabrics into what opens them. One that this
// machine does not allow is left out, as long as another is left.
func (o AgentOptions) openers(p trust.Identity, gpus *vram.Pool) ([]agent.Opener, error) {
	names := o.Fabrics
	if len(names) == 0 {
		names = FabricNames()
	}
	var all []agent.Opener
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("node: fabric %s twice", name)
		}
		switch name {
		case "host":
			dir, err := host.SocketDir(o.StateDir)
			if err != nil {
				o.Logger.Warn("the host fabric is left out: agents of this machine are reached over others", "error", err)
				continue
			}
			all = append(all, o.overHost(p, dir, gpus))
		case "file":
			all = append(all, toFiles)
		case "tcp":
			if err := o.checkListen(p); err != nil {
				return nil, err
			}
			all = append(all, o.overTCP(p))
		default:
			return nil, fmt.Errorf("node: no fabric %q; there is %s", name, strings.Join(FabricNames(), ", "))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("node: none of the fabrics can be opened; let tcp be one of them")
	}
	return all, nil
}

func (o AgentOptions) overHost(p trust.Identity, dir string, gpus *vram.Pool) agent.Opener {
	if !cuda.Built {
		gpus = nil
	}
	realm := ""
	if p.TLS != nil { // agents with other keys are peers, over tcp; without TLS they are strangers, and it is told
		key := p.Key.Derive(trust.ForRealms)
		realm = hex.EncodeToString(key[:8])
	}
	return func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		return host.Open(ctx, host.Options{
			Agent: self.Name, Incarnation: self.Incarnation, Dir: dir, HostID: o.machine, Realm: realm, Key: &p.Key, Handshake: o.Handshake,
			GPUs: gpus, Guard: self.Guard, Events: self.Events, Logger: self.Logger,
		})
	}
}

func toFiles(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	return file.Open(ctx, file.Options{Agent: self.Name, Incarnation: self.Incarnation, Events: self.Events})
}

func (o AgentOptions) overTCP(p trust.Identity) agent.Opener {
	return func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		options := tcp.Options{
			Agent: self.Name, Incarnation: self.Incarnation, Listen: o.Listen, Advertise: o.Advertise, Streams: o.Streams,
			TLS: p.TLS, Strangers: o.Strangers, Handshake: o.Handshake,
			Guard: self.Guard, Events: self.Events, Metadata: self.Metadata, Logger: self.Logger,
		}
		if p.TLS == nil {
			options.Key = &p.Key
		}
		return tcp.Open(ctx, options)
	}
}

// checkListen refuses to open memory to a network by accident.
func (o AgentOptions) checkListen(p trust.Identity) error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("node: %q is not host:port: %w", o.Listen, err)
	}
	if address := net.ParseIP(host); o.Advertise == "" && (host == "" || address != nil && address.IsUnspecified()) {
		o.Logger.Warn("peers on other hosts cannot dial an address that means all of this host's: say which one with agent.advertise", "listen", o.Listen)
	}
	switch {
	case trust.IsLoopback(host) || p.TLS != nil:
		return nil
	case !o.Insecure:
		return fmt.Errorf("node: %s is beyond loopback, and agent %s has no certificate for TLS: make a CA with `meridian cert init` and "+
			"a certificate with `meridian cert issue %s`, or allow a network that reads and changes everything with --insecure", o.Listen, o.Name, o.Name)
	}
	o.Logger.Warn("the data plane listens beyond loopback without TLS: peers prove that they know the cell's key, "+
		"but a host on the way can read and change what is sent", "listen", o.Listen)
	return nil
}
