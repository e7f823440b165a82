package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
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
		return &reason{ErrFile, err}
	case invalid.Reason == x509.Expired && now.Before(invalid.Cert.NotBefore):
		return because(ErrNotYetValid, fmt.Sprintf("%s begins at %s, it is %s", subject(invalid.Cert), stamp(invalid.Cert.NotBefore), stamp(now)))
	case invalid.Reason == x509.Expired:
		return because(ErrExpired, fmt.Sprintf("%s ended at %s, it is %s", subject(invalid.Cert), stamp(invalid.Cert.NotAfter), stamp(now)))
	case invalid.Reason == x509.IncompatibleUsage:
		return because(ErrUsage, "it cannot be used as "+usageNames[usage])
	}
	return &reason{ErrAuthority, invalid}
}

// subject is the agent that a certificate names, or what else it is called.
func subject(c *x509.Certificate) string {
	if name, err := nameIn(c); err == nil {
		return name
	}
	return c.Subject.String()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func hintFor(err error) string {
	switch {
	case errors.Is(err, ErrExpired):
		return "issue a new one: `meridian cert issue NAME --renew`; running agents take it up by themselves"
	case errors.Is(err, ErrNotYetValid):
		return "compare the clocks of the two hosts"
	case errors.Is(err, ErrAuthority):
		return "both sides need certificates of one CA: compare ca.crt with `meridian cert show`"
	case errors.Is(err, ErrUsage):
		return "an agent's certificate must be good for both server and client"
	case errors.Is(err, ErrExposed):
		return "chmod it to that"
	case errors.Is(err, ErrPair):
		return "bring both files of the pair; `meridian cert issue NAME --renew` makes a new pair"
	case errors.Is(err, ErrName):
		return "issue one for that agent: `meridian cert issue NAME`"
	case errors.Is(err, ErrProtocol):
		return "is it an agent, and has it been given certificates?"
	case errors.Is(err, ErrRefused):
		return "its log says why; most often the two have certificates of different CAs"
	}
	return ""
}
