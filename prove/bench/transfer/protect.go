package transfer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/prove/bench"
)

// The ways to protect memory that can be measured, each on top of the one
// before it. None opens everything to every peer that connects; with Grants the agent's
// own table is asked before any byte; TLS encrypts, and tells peers by their
// certificates.
const (
	noProtection = "none"
	withGrants   = "grants"
	withTLS      = "tls"
)

// Protections lists them.
func Protections() []string { return []string{noProtection, withGrants, withTLS} }

// variant is one way to run Meridian. Each has its own row.
type variant struct {
	checksum string // as asked for: on or off
	protect  string
}

func (v variant) String() string {
	name := "meridian"
	if v.protect != noProtection {
		name += " with " + v.protect
	}
	if v.checksum == "off" {
		name += ", no checksums"
	}
	return name
}

func (o *Options) variants() (all []variant) {
	for _, checksum := range o.Checksums {
		for _, protect := range o.Protect {
			all = append(all, variant{checksum, protect})
		}
	}
	return all
}

// shield is what protects one side: an agent, whose table of grants its fabric
// asks.
type shield struct {
	agent *agent.Agent
	grant kv.ID // of the row's memory; zero before there is one
}

// raise opens a side's fabric as its agent's, so that the agent guards it.
func (e *endpoint) raise(ctx context.Context, s setup, open opener) (err error) {
	var tls *trust.Source
	if s.Protect == withTLS {
		if tls, err = trust.Open(trust.Options{Files: trust.FilesIn(certificatesIn(s.Dir), e.self.Name), Name: e.self.Name}); err != nil {
			return err
		}
	}
	fabricOf := func(ctx context.Context, self agent.Self) (_ fabric.Fabric, err error) {
		e.self.Incarnation = self.Incarnation
		e.fabric, err = open(ctx, fabricOptions{
			Agent: self.Name, Incarnation: self.Incarnation, Streams: s.Streams, Checksums: s.Checksums, Events: e, Dir: s.Dir,
			Guard: self.Guard, TLS: tls,
		})
		return e.fabric, err
	}
	a, err := agent.Open(ctx, agent.Options{Name: e.self.Name, Fabrics: []agent.Opener{fabricOf}})
	if err != nil {
		return err
	}
	e.Closes(a.Close) // with its fabric
	e.shield = &shield{agent: a}
	region, err := a.Register(e.pool.Section, e.self.Name)
	e.self.Region = region.ID
	return err
}

// grantLasts is longer than any row takes.
const grantLasts = 24 * time.Hour

// open grants the posting side the row's blocks and nothing between them, and
// takes back what it granted before. Where nothing is guarded there is nothing
// to grant.
func (s *shield) open(ctx context.Context, c Case, region uint64) (kv.ID, error) {
	if s == nil {
		return kv.ID{}, nil
	}
	if s.grant != (kv.ID{}) {
		if err := s.agent.Revoke(ctx, s.grant); err != nil {
			return kv.ID{}, err
		}
	}
	list, err := c.list(serving)
	if err != nil {
		return kv.ID{}, err
	}
	list[0].Region = region
	blocks, err := s.agent.LocalSpans(list)
	if err != nil {
		return kv.ID{}, err
	}
	s.grant, err = s.agent.Grant(agent.GrantOptions{Peer: agentName(posting), Op: c.op(), Side: agent.Side{List: blocks}, For: grantLasts})
	return s.grant, err
}

func agentName(of side) string { return fmt.Sprintf("bench-%d", of) }

func certificatesIn(dir string) string { return filepath.Join(dir, "tls") }

// issueCertificates makes a CA, and a certificate for either side.
func issueCertificates(dir string) error {
	authority, err := trust.CreateAuthority(trust.AuthorityOptions{Dir: certificatesIn(dir)})
	if err != nil {
		return err
	}
	_, errPosting := authority.Issue(trust.Request{Name: agentName(posting)})
	_, errServing := authority.Issue(trust.Request{Name: agentName(serving)})
	return errors.Join(errPosting, errServing)
}

// validateProtection refuses what a fabric cannot be protected with.
func (o *Options) validateProtection() error {
	for _, name := range o.Fabrics {
		can := fabricByName(name).protections
		for _, protect := range o.Protect {
			if protect != noProtection && !slices.Contains(can, protect) {
				return fmt.Errorf("%w: %s cannot be measured with %s: %s", bench.ErrOptions, name, protect, unprotectable[protect])
			}
		}
	}
	return nil
}

var unprotectable = map[string]string{
	withGrants: "its two sides are one agent, or in one process, and ask no grants of each other here; tcp and host do",
	withTLS:    "it never leaves the machine; tcp does",
}
