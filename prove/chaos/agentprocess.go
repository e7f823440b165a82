package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// patience is how long an order may take before the test is broken.
const patience = 5 * time.Minute

// AgentProcess is the handle of an agent in a process of its own.
type AgentProcess struct {
	*Process
	Report
	Name   string
	grants map[grantKey]kv.ID
	orders *rpc.Client
}

type grantKey struct {
	peer string
	op   fabric.Op
}

// Start makes a puppet.
func Start(t testing.TB, s Setup) *AgentProcess { return StartIn(t, s, 0) }

// StartIn makes a puppet in namespaces of its own.
func StartIn(t testing.TB, s Setup, namespaces uintptr) *AgentProcess {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	process := StartProcess(t, ProcessOptions{
		Role: "puppet", Environment: []string{setup + "=" + string(text)}, Namespaces: namespaces, Stdout: childOut,
	})
	childOut.Close()
	p := &AgentProcess{Process: process, Name: s.Name, grants: make(map[grantKey]kv.ID)}
	p.orders = jsonrpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, process.in})
	p.order("Report", None{}, &p.Report)
	return p
}

// call gives an order, and waits for what becomes of it.
func (p *AgentProcess) call(method string, argument, reply any) error {
	call := p.orders.Go(serverName+"."+method, argument, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-time.After(patience):
		return fmt.Errorf("no answer to %s for %v", method, patience)
	}
}

// order is a call that must succeed.
func (p *AgentProcess) order(method string, argument, reply any) {
	p.t.Helper()
	if err := p.call(method, argument, reply); err != nil {
		p.t.Fatalf("%s: %s: %v\n%s", p.Name, method, err, p.Said())
	}
}

// Meet makes p know a peer and gets its grants for the whole of its arena.
func (p *AgentProcess) Meet(peer *AgentProcess, arenaBytes uint64) {
	p.t.Helper()
	peer.order("Report", None{}, &peer.Report)
	p.order("Load", peer.Blob, &None{})
	p.TakeGrants(peer, arenaBytes)
}

// TakeGrants asks a peer to open its arena for both operations.
func (p *AgentProcess) TakeGrants(peer *AgentProcess, arenaBytes uint64) {
	p.t.Helper()
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		p.grants[grantKey{peer.Name, op}] = peer.Grant(Opening{Peer: p.Name, Op: op, Length: arenaBytes})
	}
}

// Grant asks p to open memory of its arena.
func (p *AgentProcess) Grant(o Opening) (id kv.ID) {
	p.t.Helper()
	p.order("Grant", o, &id)
	return id
}

// References counts who holds the arena.
func (p *AgentProcess) References() (n int) {
	p.t.Helper()
	p.order("References", None{}, &n)
	return n
}

// Find makes p look a peer up in the directory.
func (p *AgentProcess) Find(name string) {
	p.t.Helper()
	p.order("Find", name, &None{})
}

func (p *AgentProcess) granted(o Post) Post {
	if o.Grant == (kv.ID{}) {
		o.Grant = p.grants[grantKey{o.Peer, o.Op}]
	}
	return o
}

// Post starts a transfer.
func (p *AgentProcess) Post(o Post) (out Outcome) {
	p.t.Helper()
	p.order("Post", p.granted(o), &out)
	return out
}

// Await waits for the end of a transfer that was posted; a refused post has
// ended already.
func (p *AgentProcess) Await(posted Outcome) (out Outcome) {
	p.t.Helper()
	if posted.Err != nil {
		return posted
	}
	p.order("Await", posted.ID, &out)
	return out
}

// Transfer posts and waits.
func (p *AgentProcess) Transfer(o Post) Outcome {
	p.t.Helper()
	return p.Await(p.Post(o))
}

// Run repeats a transfer for a while.
func (p *AgentProcess) Run(o Post, d time.Duration) (rate Rate) {
	p.t.Helper()
	p.order("Run", Run{p.granted(o), d}, &rate)
	return rate
}

// Fill overwrites a stretch of the arena.
func (p *AgentProcess) Fill(s Stretch) {
	p.t.Helper()
	p.order("Fill", s, &None{})
}

// Count takes a census of a stretch of the arena.
func (p *AgentProcess) Count(s Stretch) (c WordCount) {
	p.t.Helper()
	p.order("Count", s, &c)
	return c
}

// Fence fences the arena.
func (p *AgentProcess) Fence() *Failure {
	p.t.Helper()
	var a Answer
	p.order("Fence", None{}, &a)
	return a.Err
}

// Notifications takes what has arrived.
func (p *AgentProcess) Notifications() (all []string) {
	p.t.Helper()
	p.order("Notifications", None{}, &all)
	return all
}

// Arena makes and gives back an arena of that size.
func (p *AgentProcess) Arena(size uint64) *Failure {
	p.t.Helper()
	var a Answer
	p.order("Arena", size, &a)
	return a.Err
}

// OpenFile opens a file for Store.
func (p *AgentProcess) OpenFile(o File) *Failure {
	p.t.Helper()
	var a Answer
	p.order("OpenFile", o, &a)
	return a.Err
}

// Store moves a stretch between arena and file.
func (p *AgentProcess) Store(o Post) (out Outcome) {
	p.t.Helper()
	p.order("Store", o, &out)
	return out
}
