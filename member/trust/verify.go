package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"meridian/internal/fault"
)

var errNoCertificate = because(ErrName, "there is no certificate")

// verifyChain checks that a chain, leaf first, leads to a root and may be used
// so at that time.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, now time.Time, usage x509.ExtKeyUsage) error {
	if len(chain) == 0 {
		return errNoCertificate
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: poolOf(chain[1:]), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err == nil {
		return nil
	}
	return classify(err, now, usage)
}

// classify gives an error of x509 its sentinel.
func classify(err error, now time.Time, usage x509.ExtKeyUsage) error {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return because(ErrAuthority, "its issuer is "+unknown.Cert.Issuer.String())
	case !errors.As(err, &invalid):
		return fmt.Errorf("%w: %w", ErrFile, err)
	case invalid.Reason == x509.Expired && now.Before(invalid.Cert.NotBefore):
		return because(ErrNotYetValid, fmt.Sprintf("%s begins at %s, it is %s", subject(invalid.Cert), stamp(invalid.Cert.NotBefore), stamp(now)))
	case invalid.Reason == x509.Expired:
		return because(ErrExpired, fmt.Sprintf("%s ended at %s, it is %s", subject(invalid.Cert), stamp(invalid.Cert.NotAfter), stamp(now)))
	case invalid.Reason == x509.IncompatibleUsage:
		return because(ErrUsage, "it cannot be used as "+usageNames[usage])
	}
	return fmt.Errorf("%w: %w", ErrAuthority, invalid)
}

// subject is the agent that a certificate names, or what else it is called.
func subject(c *x509.Certificate) string {
	if name, err := nameIn(c); err == nil {
		return name
	}
	return c.Subject.String()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

var hints = fault.Hints{
	{ErrExpired, "issue a new one: `meridian cert issue NAME --renew`; running agents take it up by themselves"},
	{ErrNotYetValid, "compare the clocks of the two hosts"},
	{ErrAuthority, "both sides need certificates of one CA: compare ca.crt with `meridian cert show`"},
	{ErrUsage, "an agent's certificate must be good for both server and client"},
	{ErrExposed, "chmod it to that"},
	{ErrPair, "bring both files of the pair; `meridian cert issue NAME --renew` makes a new pair"},
	{ErrName, "issue one for that agent: `meridian cert issue NAME`"},
	{ErrProtocol, "is it an agent, and has it been given certificates?"},
	{ErrRefused, "its log says why; most often the two have certificates of different CAs"},
}
