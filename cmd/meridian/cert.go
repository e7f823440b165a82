package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"meridian/member/trust"
)

type certCommands struct {
	Init  certInit  `cmd:"" help:"Make a small CA for a cell."`
	Issue certIssue `cmd:"" help:"Issue the certificate of an agent."`
	Show  certShow  `cmd:"" help:"Tell what certificates are, and whether an agent can use them."`
}

// certDir is where the commands keep certificates.
type certDir struct {
	State string `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory; certificates are in tls below it (default: agent.state_dir of the configuration)."`
}

func (c certDir) path(std *stdio, all *commands) (string, error) {
	loaded, err := all.load(std)
	if err != nil {
		return "", err
	}
	cell := cellFlags{State: c.State}
	if err := cell.fill(loaded.Config); err != nil {
		return "", err
	}
	return trust.Dir(cell.State), nil
}

// certFailure puts the advice of an error on a line of its own.
func certFailure(err error) error {
	var refused *trust.Error
	if !errors.As(err, &refused) {
		return err
	}
	bare, status := *refused, exitFailure
	bare.Hint = ""
	if errors.Is(err, trust.ErrInvalid) || errors.Is(err, trust.ErrFile) {
		status = exitInvalid
	}
	return &failure{err: &bare, hint: refused.Hint, status: status}
}

type certInit struct {
	certDir
	Days int `default:"3650" placeholder:"N" help:"Days until the CA ends; default ${default}."`
}

func (c *certInit) Help() string {
	return "Makes ca.key, which signs the certificates of a cell and stays on this host, and ca.crt, which goes to every host. " +
		"A CA that exists is never overwritten: to start anew, move its directory aside and issue every certificate again. " +
		"A cell that has a PKI does not need this command."
}

func (c *certInit) Run(std *stdio, all *commands) error {
	dir, err := c.path(std, all)
	if err != nil {
		return err
	}
	ca, err := trust.CreateAuthority(trust.AuthorityOptions{Dir: dir, Days: c.Days})
	if err != nil {
		return certFailure(err)
	}
	made := trust.Describe(ca.Certificate())
	_, err = fmt.Fprintf(std.out, "made %s, until %s\n  %s  goes to every host\n  %s  stays here, and secret\n  sha256 %s\n",
		made.Subject, made.NotAfter.Format(time.DateOnly), filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), made.Fingerprint)
	return err
}

type certIssue struct {
	certDir
	Name  string   `arg:"" help:"Name of the agent."`
	Host  []string `placeholder:"HOST" help:"DNS names and IP addresses for clients that know a server by its host, as those of a directory do. Agents know each other by name."`
	Days  int      `default:"365" placeholder:"N" help:"Days until the certificate ends; default ${default}."`
	Renew bool     `help:"Replace the certificate and the key that are there; hosts stay unless others are given."`
}

func (c *certIssue) Help() string {
	return "Makes a key and a certificate that names the agent and is good for both sides of a link. " +
		"Bring both, and ca.crt, to the same place on the agent's host."
}

func (c *certIssue) Run(std *stdio, all *commands) error {
	dir, err := c.path(std, all)
	if err != nil {
		return err
	}
	ca, err := trust.OpenAuthority(dir)
	if err != nil {
		return certFailure(err)
	}
	files, err := ca.Issue(trust.Request{Name: c.Name, Hosts: c.Host, Days: c.Days, Renew: c.Renew})
	if err != nil {
		return certFailure(err)
	}
	chain, err := trust.ReadCertificates(files.Cert)
	if err != nil {
		return certFailure(err)
	}
	made := trust.Describe(chain[0])
	_, err = fmt.Fprintf(std.out, "issued %s, until %s\n  %s\n  %s  secret\n  sha256 %s\n",
		made.Agent, made.NotAfter.Format(time.DateOnly), files.Cert, files.Key, made.Fingerprint)
	return err
}

type certShow struct {
	certDir
	Files  []string `arg:"" optional:"" help:"PEM files; without any, those of the state directory."`
	CA     string   `placeholder:"FILE" help:"Check as well that a CA of this file has signed them."`
	Within int      `default:"30" placeholder:"N" help:"Complain of certificates that end within so many days; default ${default}."`
	JSON   bool     `help:"Print one JSON object."`
}

func (c *certShow) Help() string {
	return "Prints who a certificate is of, who signed it, what it is for and when it ends, and judges it as a peer would. " +
		"The exit status is 0 when all can be used, 1 when one cannot or ends soon, and 2 when a file holds no certificate."
}

// shownCertificate is one certificate of a file, and what is wrong with it.
type shownCertificate struct {
	File string `json:"file"`
	trust.Description
	DaysLeft int    `json:"days_left"`
	Problem  string `json:"problem,omitempty"`
}

func (c *certShow) Run(std *stdio, all *commands) error {
	files, err := c.files(std, all)
	if err != nil {
		return err
	}
	var roots []*x509.Certificate
	if c.CA != "" {
		if roots, err = trust.ReadCertificates(c.CA); err != nil {
			return certFailure(err)
		}
	}
	shown, unreadable := []shownCertificate{}, error(nil)
	for _, file := range files {
		chain, err := trust.ReadCertificates(file)
		if err != nil && unreadable == nil {
			unreadable = certFailure(err)
		}
		for i := range chain {
			shown = append(shown, c.judge(file, chain[i:], roots, i == 0))
		}
	}
	if err := printCertificates(std, shown, c.JSON); err != nil {
		return err
	}
	if unreadable != nil {
		return unreadable
	}
	return complaint(shown)
}

func (c *certShow) files(std *stdio, all *commands) ([]string, error) {
	if len(c.Files) > 0 {
		return c.Files, nil
	}
	dir, err := c.path(std, all)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.crt"))
	if err == nil && len(files) == 0 {
		err = &failure{err: fmt.Errorf("there are no certificates in %s", dir), hint: "name files, or make a CA with `meridian cert init`", status: exitFailure}
	}
	return files, err
}

// judge describes the first of a chain. Only the first of a file is an agent's;
// what follows has signed it.
func (c *certShow) judge(file string, chain, roots []*x509.Certificate, first bool) shownCertificate {
	now := time.Now()
	left := chain[0].NotAfter.Sub(now)
	s := shownCertificate{File: file, Description: trust.Describe(chain[0]), DaysLeft: int(left / (24 * time.Hour))}
	var err error
	switch {
	case first && !chain[0].IsCA:
		err = trust.Check(chain, roots, now)
	case left < 0:
		err = trust.ErrExpired
	case now.Before(chain[0].NotBefore):
		err = trust.ErrNotYetValid
	}
	if err == nil && s.DaysLeft < c.Within {
		err = fmt.Errorf("it ends in %d days", s.DaysLeft)
	}
	if err != nil {
		s.Problem = err.Error()
	}
	return s
}

func printCertificates(std *stdio, shown []shownCertificate, asJSON bool) error {
	if asJSON {
		return std.writeJSON(map[string]any{"certificates": shown})
	}
	for _, s := range shown {
		fmt.Fprintln(std.out, s.File)
		table := newTable(std.out, "")
		row := func(name, value string) {
			if value != "" {
				fmt.Fprintf(table, "  %s\t%s\n", name, value)
			}
		}
		row("agent", s.Agent)
		row("subject", s.Subject)
		row("issuer", s.Issuer)
		row("hosts", strings.Join(s.Hosts, ", "))
		row("good for", strings.Join(s.Usages, ", "))
		row("valid", fmt.Sprintf("%s to %s, %d days left", s.NotBefore.UTC().Format(time.RFC3339), s.NotAfter.UTC().Format(time.RFC3339), s.DaysLeft))
		row("sha256", s.Fingerprint)
		row("problem", s.Problem)
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// complaint is the first problem, for the exit status.
func complaint(shown []shownCertificate) error {
	for _, s := range shown {
		if s.Problem == "" {
			continue
		}
		hint := "docs/security-setup.md says what a certificate must be"
		if s.Agent != "" {
			hint = fmt.Sprintf("`meridian cert issue %s --renew` makes a new one", s.Agent)
		}
		return &failure{err: fmt.Errorf("%s: %s", s.File, s.Problem), hint: hint, status: exitFailure}
	}
	return nil
}
