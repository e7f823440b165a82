package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/run/node"
)

// fileMessage is what send and recv tell each other in notifications, about one
// file: the sender registers it and offers it; the receiver reads it, window by
// window, straight into a file of its own, and says how far it is. It is the
// smallest use of everything an agent does.
type fileMessage struct {
	Kind     string `json:"kind"` // offer, progress, done, refused
	Name     string `json:"name,omitempty"`
	Bytes    uint64 `json:"bytes,omitempty"`
	Address  uint64 `json:"address,omitempty"`
	Device   uint32 `json:"device,omitempty"`
	Grant    string `json:"grant,omitempty"`
	Metadata []byte `json:"metadata,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

const (
	windowBytes = 32 << 20
	// fileDevice keeps file sections apart, which all begin at address 0.
	fileDevice = 1
	// answerPatience is how long either side waits for a sign of life.
	answerPatience = 30 * time.Second
)

func (m fileMessage) encode() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // plain fields
	}
	return b
}

type sendCommand struct {
	cellFlags
	File   string `arg:"" type:"existingfile" help:"File to send."`
	To     string `arg:"" name:"peer" help:"PEER, or PEER:NAME to give the file another name there."`
	At     string `placeholder:"HOST:PORT" help:"Address of the peer, where there is no directory."`
	Listen string `placeholder:"ADDRESS" help:"Address to be read at (default: agent.listen of the configuration)."`
	Name   string `help:"Name of the agent that sends; with TLS, one that has a certificate and does not run (default: one made up for this file)."`
	JSON   bool   `help:"Print one JSON object."`
}

func (c *sendCommand) Run(std *stdio, all *commands) error {
	peerName, name, _ := strings.Cut(c.To, ":")
	name = cmp.Or(name, filepath.Base(c.File))
	f, err := os.Open(c.File)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if info.Size() == 0 {
		return errors.Join(invalid("", "%s is empty: there is nothing to send", c.File), f.Close())
	}
	ctx, cancel := untilStopped()
	defer cancel()
	n, err := c.open(ctx, std, all)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(c.send(ctx, std, n, f, uint64(info.Size()), peerName, name), closeSoon(n.Close))
}

// open starts an agent for one file.
func (c *sendCommand) open(ctx context.Context, std *stdio, all *commands) (*node.Agent, error) {
	self := agentFlags{cellFlags: c.cellFlags, Name: c.Name, Listen: c.Listen, NoDirectory: c.At != ""}
	return shortAgent(ctx, std, all, self, "send", agentParts{})
}

func (c *sendCommand) send(ctx context.Context, std *stdio, n *node.Agent, f *os.File, size uint64, peerName, name string) error {
	section, err := mem.OpenFile(f, size, fileDevice)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer closeSoon(section.Close) // read only: nothing can be lost
	region, err := n.Register(section, name)
	if err != nil {
		return err
	}
	defer n.Deregister(context.WithoutCancel(ctx), region.ID)
	peer, err := c.peer(ctx, n, peerName)
	if err != nil {
		return err
	}
	grant, err := openFor(n, peer, region)
	if err != nil {
		return err
	}
	defer n.Revoke(context.WithoutCancel(ctx), grant)
	offer := fileMessage{
		Kind: "offer", Name: name, Bytes: size, Address: region.Address, Device: region.Device, Grant: grant.String(), Metadata: n.MetadataBlob(),
	}
	if err := peer.Notify(ctx, offer.encode()); err != nil {
		return err
	}
	bar := newProgress(std.err, name, size)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(answerPatience):
			return fmt.Errorf("%s has not answered for %v", peerName, answerPatience)
		case note := <-n.Notifications():
			var m fileMessage
			if err := json.Unmarshal(note.Payload, &m); err != nil {
				return fmt.Errorf("%s answered what this version does not understand: %w", oneLine(note.From), err)
			}
			switch m.Kind {
			case "progress":
				bar.set(m.Bytes)
			case "refused":
				return fmt.Errorf("%s refused %s: %s", oneLine(note.From), name, oneLine(m.Reason))
			case "done":
				bar.finish()
				if c.JSON {
					return std.writeJSON(map[string]any{"file": name, "to": note.From, "bytes": size})
				}
				_, err := fmt.Fprintf(std.out, "sent %s to %s: %d bytes, every chunk verified\n", name, oneLine(note.From), size)
				return err
			}
		}
	}
}

// grantTime is longer than any file takes; it ends with the command.
const grantTime = 24 * time.Hour

// openFor lets one peer read a region.
func openFor(n *node.Agent, peer *agent.Peer, region agent.RegionInfo) (kv.ID, error) {
	all, err := n.Local([]agent.Descriptor{{Address: region.Address, Length: region.Length, Device: region.Device}})
	if err != nil {
		return kv.ID{}, err
	}
	return n.Grant(agent.GrantOptions{
		Peer: peer.Name, Incarnation: peer.Incarnation, Op: fabric.Read, Side: agent.Side{List: all}, For: grantTime,
	})
}

func (c *sendCommand) peer(ctx context.Context, n *node.Agent, name string) (*agent.Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var p *agent.Peer
	var err error
	if c.At == "" {
		p, err = n.Find(ctx, name)
	} else {
		p, err = n.Fetch(ctx, "tcp", c.At)
	}
	switch {
	case err == nil && p.Name != name:
		return nil, fmt.Errorf("%s answers at %s, not %s", p.Name, c.At, name)
	case errors.Is(err, directory.ErrNotFound):
		return nil, &failure{
			err:  fmt.Errorf("no agent %s is in the directory", name),
			hint: "`meridian peers` lists who is there; one that was just started needs a moment", status: exitFailure,
		}
	case errors.Is(err, io.EOF) && !n.HasTLS():
		// A listener with TLS has no words for a peer that speaks none.
		return nil, &failure{err: err, hint: "if " + name + " has TLS, send with --name NAME, an agent that `meridian cert issue NAME` made a certificate for", status: exitFailure}
	}
	return p, err
}

type recvCommand struct {
	agentFlags
	Dir       string `default:"." type:"existingdir" help:"Where files are put."`
	Once      bool   `help:"Stop after the first file."`
	Overwrite bool   `help:"Replace files that exist."`
	JSON      bool   `help:"Print one JSON object a line: who waits, and each file."`
}

func (c *recvCommand) Run(std *stdio, all *commands) error {
	ctx, cancel := untilStopped()
	defer cancel()
	n, err := c.open(ctx, std, all, agentParts{})
	if err != nil {
		return err
	}
	if c.JSON {
		err = std.writeJSON(map[string]any{"waiting_as": n.Name(), "proof": n.Proof()})
	} else {
		_, err = fmt.Fprintf(std.out, "waiting for files as %s (%s)\n", n.Name(), n.Proof())
	}
	if err == nil {
		err = c.serve(ctx, std, all, n)
	}
	return errors.Join(err, closeSoon(n.Close))
}

func (c *recvCommand) serve(ctx context.Context, std *stdio, all *commands, n *node.Agent) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case note := <-n.Notifications():
			var m fileMessage
			if json.Unmarshal(note.Payload, &m) != nil || m.Kind != "offer" {
				continue // another conversation of this agent
			}
			if err := c.tell(std, m, note.From, c.receive(ctx, std, all, n, m, note.From)); err != nil {
				return err
			}
			if c.Once {
				return nil
			}
		}
	}
}

// tell says what became of an offer.
func (c *recvCommand) tell(std *stdio, m fileMessage, from string, failed error) error {
	if c.JSON {
		said := map[string]any{"file": m.Name, "from": from, "bytes": m.Bytes}
		if failed != nil {
			said["error"] = failed.Error()
		}
		return std.writeJSON(said)
	}
	if failed != nil {
		_, err := fmt.Fprintf(std.err, "%s from %s: %s\n", oneLine(m.Name), oneLine(from), printable(failed.Error()))
		return err
	}
	_, err := fmt.Fprintf(std.out, "received %s from %s: %d bytes, every chunk verified\n", oneLine(m.Name), oneLine(from), m.Bytes)
	return err
}

// receive takes one file, of the agent that offered it. It appears under its name only when it is whole.
func (c *recvCommand) receive(ctx context.Context, std *stdio, all *commands, n *node.Agent, m fileMessage, from string) error {
	peer, err := n.LoadMetadata(m.Metadata)
	if err != nil {
		return err
	}
	defer n.Forget(context.WithoutCancel(ctx), peer.Name)
	if peer.Name != from {
		return fmt.Errorf("the offer is of a file of %s: an agent offers its own", oneLine(peer.Name))
	}
	err = c.take(ctx, std, n, peer, m)
	answer := fileMessage{Kind: "done"}
	if err != nil {
		answer = fileMessage{Kind: "refused", Reason: err.Error()}
	}
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if told := peer.Notify(telling, answer.encode()); told != nil {
		// The file is here, or is not, whether the sender has heard of it or
		// left as soon as it had.
		all.logger(std).Debug("the sender was not told", "error", told)
	}
	return err
}

// longestFileName leaves room, in what file systems take, for what a file is
// called until it is whole.
const longestFileName = 200

// checkFileName refuses what would be put elsewhere, be hidden, or show as
// something else than it is.
func checkFileName(name string) error {
	switch {
	case len(name) > longestFileName:
		return fmt.Errorf("a file name of %d bytes; %d are taken", len(name), longestFileName)
	case name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") || printable(name) != name || strings.ContainsAny(name, "\n\t"):
		return fmt.Errorf("%+q is not a plain file name", name)
	}
	return nil
}

func (c *recvCommand) take(ctx context.Context, std *stdio, n *node.Agent, peer *agent.Peer, m fileMessage) error {
	if err := checkFileName(m.Name); err != nil {
		return err
	}
	if _, err := peer.Remote([]agent.Descriptor{{Address: m.Address, Length: m.Bytes, Device: m.Device}}); err != nil {
		return fmt.Errorf("the offer is not of what the sender has registered: %w", err)
	}
	target := filepath.Join(c.Dir, m.Name)
	if _, err := os.Lstat(target); err == nil && !c.Overwrite {
		return fmt.Errorf("%s exists; start with --overwrite to replace it", m.Name)
	}
	f, err := os.CreateTemp(c.Dir, "."+m.Name+".*")
	if err != nil {
		return err
	}
	partial := f.Name()
	defer os.Remove(partial) // gone by then if all went well
	section, err := mem.OpenFile(f, m.Bytes, fileDevice)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	region, err := n.Register(section, m.Name)
	if err == nil {
		err = c.read(ctx, std, n, peer, m, region)
		err = errors.Join(err, n.Deregister(context.WithoutCancel(ctx), region.ID))
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Chmod(0o644))
	}
	if err := errors.Join(err, closeSoon(section.Close)); err != nil {
		return err
	}
	return os.Rename(partial, target)
}

// read brings the file over, window by window.
func (c *recvCommand) read(ctx context.Context, std *stdio, n *node.Agent, peer *agent.Peer, m fileMessage, region agent.RegionInfo) error {
	grant, err := kv.ParseID(m.Grant)
	if err != nil {
		return fmt.Errorf("the offer opens nothing: %w", err)
	}
	bar := newProgress(std.err, m.Name, m.Bytes)
	defer bar.finish()
	for at := uint64(0); at < m.Bytes; {
		size := min(windowBytes, m.Bytes-at)
		local, err := n.Local([]agent.Descriptor{{Address: region.Address + at, Length: size, Device: region.Device}})
		if err != nil {
			return err
		}
		remote, err := peer.Remote([]agent.Descriptor{{Address: m.Address + at, Length: size, Device: m.Device}})
		if err != nil {
			return err
		}
		if err := c.window(ctx, n, grant, agent.Side{List: local}, agent.Side{List: remote}); err != nil {
			return err
		}
		at += size
		bar.set(at)
		if err := peer.Notify(ctx, fileMessage{Kind: "progress", Bytes: at}.encode()); err != nil {
			return err
		}
	}
	return nil
}

func (c *recvCommand) window(ctx context.Context, n *node.Agent, grant kv.ID, local, remote agent.Side) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	r, err := n.Prepare(fabric.Read, local, remote)
	if err != nil {
		return err
	}
	defer r.Release()
	t, err := r.Post(ctx, agent.PostOptions{Grant: grant})
	if err != nil {
		return err
	}
	return t.Await(ctx)
}
