package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// party is an agent with a region of its own.
type party struct {
	*Agent
	memory *mem.Section
	region agent.RegionInfo
}

func join(t *testing.T, o AgentOptions) *party {
	t.Helper()
	p := &party{Agent: open(t, o), memory: newMemory(t)}
	var err error
	if p.region, err = p.Register(p.memory, ""); err != nil {
		t.Fatal(err)
	}
	return p
}

// side is [offset, offset+length) of the party's region, as its owner lists it.
func (p *party) side(t *testing.T, offset, length uint64) agent.Side {
	t.Helper()
	list, err := p.Local([]agent.Descriptor{{Address: p.region.Address + offset, Length: length}})
	if err != nil {
		t.Fatal(err)
	}
	return agent.Side{List: list}
}

func (p *party) grant(t *testing.T, o agent.GrantOptions) kv.ID {
	t.Helper()
	id, err := p.Grant(o)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// openTo lets a peer read some of the party's region.
func (p *party) openTo(t *testing.T, peer string) kv.ID {
	t.Helper()
	return p.grant(t, agent.GrantOptions{Peer: peer, Op: fabric.Read, Side: p.side(t, 0, 4096), For: time.Minute})
}

func (p *party) contents(t *testing.T) []byte {
	t.Helper()
	b := make([]byte, kvBytes)
	if err := p.memory.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *party) scramble(t *testing.T) {
	t.Helper()
	b := make([]byte, kvBytes)
	rand.Read(b)
	if err := p.memory.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

// access is what one agent asks of another's region.
type access struct {
	op             fabric.Op
	offset, length uint64
	grant          kv.ID
}

// ask posts between the same offsets of both regions and returns the
// transfer's error.
func (p *party) ask(t *testing.T, far *party, a access) error {
	t.Helper()
	peer, err := p.LoadMetadata(far.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	remote, err := peer.Remote([]agent.Descriptor{{Address: far.region.Address + a.offset, Length: a.length}})
	if err != nil {
		t.Fatal(err)
	}
	return p.post(t, remote, a)
}

func (p *party) post(t *testing.T, remote *agent.List, a access) error {
	t.Helper()
	r, err := p.Prepare(a.op, p.side(t, a.offset, a.length), agent.Side{List: remote})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	transfer, err := r.Post(ctx, agent.PostOptions{Grant: a.grant})
	if err != nil {
		return err
	}
	return transfer.Await(ctx)
}

// ways are all that agents can reach each other by.
func ways() map[string]func(*testing.T, AgentOptions) AgentOptions {
	return map[string]func(*testing.T, AgentOptions) AgentOptions{
		"host": func(_ *testing.T, o AgentOptions) AgentOptions {
			o.Fabrics = []string{"host"}
			return o
		},
		"tcp with the cell key": func(_ *testing.T, o AgentOptions) AgentOptions {
			o.Fabrics = []string{"tcp"}
			return o
		},
		"tcp with TLS": func(t *testing.T, o AgentOptions) AgentOptions {
			o.Fabrics, o.TLS.Mode = []string{"tcp"}, trust.TLSRequired
			authorityIn(t, o.StateDir)
			issueIn(t, o.StateDir, trust.Request{Name: o.Name, Renew: true})
			return o
		},
	}
}

const (
	grantedFrom = 4096
	grantedSize = 8192
)

// Whatever a request lacks of its grant is refused by name, before a byte
// moves, on every fabric.
func TestGrants(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			near := join(t, way(t, AgentOptions{Name: "near", StateDir: dir}))
			other := join(t, way(t, AgentOptions{Name: "other", StateDir: dir}))
			far := join(t, way(t, AgentOptions{Name: "far", StateDir: dir, Metrics: "127.0.0.1:0"}))
			opened := agent.GrantOptions{Peer: "near", Op: fabric.Read, Side: far.side(t, grantedFrom, grantedSize), For: time.Minute}
			toRead := far.grant(t, opened)
			for _, c := range refusals(t, far, opened, toRead) {
				from := near
				if c.other {
					from = other
				}
				testRefused(t, from, far, c)
			}
			testAllowed(t, near, far, toRead)
			testFenced(t, near, far, toRead)
			testAudit(t, far)
		})
	}
}

// refusal is an access and the error it must have.
type refusal struct {
	name  string
	other bool // not the agent that the grant is for
	access
	want error
}

func refusals(t *testing.T, far *party, opened agent.GrantOptions, toRead kv.ID) []refusal {
	t.Helper()
	brief, gone, once := opened, opened, opened
	brief.For, once.Incarnation = time.Nanosecond, agent.NewID()
	expired, revoked, reborn := far.grant(t, brief), far.grant(t, gone), far.grant(t, once)
	if err := far.Revoke(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	guessed := toRead
	guessed[15]++
	read := func(offset, length uint64, grant kv.ID) access { return access{fabric.Read, offset, length, grant} }
	return []refusal{
		{"no grant", false, read(grantedFrom, grantedSize, kv.ID{}), fabric.ErrNoGrant},
		{"no grant to write", false, access{fabric.Write, grantedFrom, grantedSize, kv.ID{}}, fabric.ErrNoGrant},
		{"guessed", false, read(grantedFrom, grantedSize, guessed), fabric.ErrNoGrant},
		{"another peer", true, read(grantedFrom, grantedSize, toRead), fabric.ErrGrantPeer},
		{"another incarnation", false, read(grantedFrom, grantedSize, reborn), fabric.ErrGrantPeer},
		{"another operation", false, access{fabric.Write, grantedFrom, grantedSize, toRead}, fabric.ErrGrantOp},
		{"wider", false, read(grantedFrom, grantedSize+1, toRead), fabric.ErrGrantSpans},
		{"from before", false, read(grantedFrom-1, grantedSize, toRead), fabric.ErrGrantSpans},
		{"expired", false, read(grantedFrom, grantedSize, expired), fabric.ErrGrantExpired},
		{"revoked", false, read(grantedFrom, grantedSize, revoked), fabric.ErrGrantRevoked},
	}
}

func testRefused(t *testing.T, from, far *party, c refusal) {
	t.Helper()
	from.scramble(t)
	far.scramble(t)
	here, there, before := from.contents(t), far.contents(t), far.Metrics().Audit.Refused
	if err := from.ask(t, far, c.access); !errors.Is(err, c.want) {
		t.Errorf("%s: %v, want %v", c.name, err, c.want)
	}
	if !bytes.Equal(from.contents(t), here) || !bytes.Equal(far.contents(t), there) {
		t.Errorf("%s: bytes moved all the same", c.name)
	}
	if got := far.Metrics().Audit.Refused - before; got != 1 {
		t.Errorf("%s: %d refusals were counted", c.name, got)
	}
}

func testAllowed(t *testing.T, near, far *party, toRead kv.ID) {
	t.Helper()
	far.scramble(t)
	for range 2 { // a grant may be used again
		if err := near.ask(t, far, access{fabric.Read, grantedFrom, grantedSize, toRead}); err != nil {
			t.Error(err)
		}
	}
	if err := near.ask(t, far, access{fabric.Read, grantedFrom + 100, 200, toRead}); err != nil {
		t.Errorf("a part of it: %v", err)
	}
	if here, there := near.contents(t), far.contents(t); !bytes.Equal(here[grantedFrom:][:grantedSize], there[grantedFrom:][:grantedSize]) {
		t.Error("something else was read")
	}
	near.scramble(t)
	toWrite := far.grant(t, agent.GrantOptions{Peer: "near", Incarnation: near.Incarnation(), Op: fabric.Write, Side: far.side(t, 0, 4096), For: time.Minute})
	if err := near.ask(t, far, access{fabric.Write, 0, 4096, toWrite}); err != nil {
		t.Error(err)
	}
	if here, there := near.contents(t), far.contents(t); !bytes.Equal(here[:4096], there[:4096]) {
		t.Error("something else was written")
	}
}

// testFenced: neither what was prepared before a fence nor what was granted
// before it is of use after it.
func testFenced(t *testing.T, near, far *party, toRead kv.ID) {
	t.Helper()
	peer, err := near.LoadMetadata(far.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := peer.Remote([]agent.Descriptor{{Address: far.region.Address + grantedFrom, Length: grantedSize}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Fence(t.Context(), far.region.ID); err != nil {
		t.Fatal(err)
	}
	before := near.contents(t)
	if err := near.post(t, prepared, access{fabric.Read, grantedFrom, grantedSize, toRead}); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Errorf("prepared before the fence: %v", err)
	}
	if err := near.ask(t, far, access{fabric.Read, grantedFrom, grantedSize, toRead}); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Errorf("granted before the fence: %v", err)
	}
	if !bytes.Equal(before, near.contents(t)) {
		t.Error("bytes moved all the same")
	}
}

// testAudit: the endpoint tells what the agent has counted.
func testAudit(t *testing.T, far *party) {
	t.Helper()
	m := far.Metrics()
	if m.Audit.Granted != 5 || m.Audit.Revoked != 1 || m.Audit.Fenced == 0 || m.Audit.ChecksumFailures != 0 {
		t.Errorf("%+v", m.Audit)
	}
	response, err := http.Get("http://" + far.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]uint64{
		"granted": m.Audit.Granted, "revoked": m.Audit.Revoked, "refused": m.Audit.Refused, "fenced": m.Audit.Fenced, "checksum_failed": 0,
	} {
		if line := fmt.Sprintf("meridian_agent_audit_events_total{event=%q} %d\n", label, want); !strings.Contains(string(body), line) {
			t.Errorf("the endpoint lacks %q", line)
		}
	}
	if line := fmt.Sprintf("\nmeridian_agent_grants %d\n", m.Grants); !strings.Contains(string(body), line) {
		t.Errorf("the endpoint lacks %q", line)
	}
}
