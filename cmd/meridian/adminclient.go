package main

import (
	"net/http"
	"net/url"
	"os"
	"strings"

	"meridian/member/trust"
	"meridian/run/cell/openaiclient"
	"meridian/run/config"
)

// adminClient asks admin listeners of gateways: with the key of MERIDIAN_ADMIN_KEY or
// the first of gateway.admin_key_file, and trusting the certificate of the
// configuration where there is one, else whom this machine trusts.
func adminClient(in *config.Config) (*http.Client, error) {
	key := os.Getenv("MERIDIAN_ADMIN_KEY")
	if key == "" {
		key = lineOfFile(in.Gateway.AdminKeyFile)
	}
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	if in.Gateway.TLSCert != config.None {
		certificate, err := openaiclient.ReadCertificate(in.Gateway.TLSCert)
		if err != nil {
			return nil, invalid("name a file with the certificate in PEM, or none", "gateway.tls_cert: %w", err)
		}
		client = openaiclient.Trusting(certificate)
	}
	client.Transport = withKey{key: key, next: client.Transport}
	// An answer that leads elsewhere is not followed: the key is for who was asked.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// clientFor is the client for a gateway that a record of the directory names. Any writer of
// the directory could name itself: the key goes to our own address, and to a server that has
// our certificate. Others are asked without it.
func clientFor(record string, operator *http.Client, in *config.Config) *http.Client {
	where, err := url.Parse(record)
	ours := err == nil && where.Host == in.Gateway.AdminListen
	pinned := err == nil && where.Scheme == "https" && in.Gateway.TLSCert != config.None
	if keyed, is := operator.Transport.(withKey); is && !ours && !pinned {
		keyless := *operator
		keyless.Transport = keyed.next
		return &keyless
	}
	return operator
}

// withKey sends a key only where it cannot be overheard: by https, or within this host.
type withKey struct {
	key  string
	next http.RoundTripper
}

func (t withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.key != "" && (strings.EqualFold(r.URL.Scheme, "https") || trust.IsLoopback(r.URL.Hostname())) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.key)
	}
	return t.next.RoundTrip(r)
}
