package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// minAdminKey is how many bytes a key of the admin listener has at least: nobody
// counts how often strangers guess.
const minAdminKey = 16

// checkAdmin refuses an admin listener that strangers could use: beyond loopback it
// needs TLS and a key.
func (o *Options) checkAdmin() error {
	for _, key := range o.AdminKeys {
		if len(key) < minAdminKey {
			return fmt.Errorf("gateway: a key of the admin listener has %d bytes; at least %d, as `openssl rand -hex 16` makes", len(key), minAdminKey)
		}
	}
	if o.Admin == "" {
		return nil
	}
	loopback, err := isLoopback(o.Admin)
	switch {
	case err != nil || loopback:
		return err
	case o.TLS == nil || len(o.AdminKeys) == 0:
		return fmt.Errorf("gateway: the admin listener %s is beyond loopback, where it needs TLS and a key: give gateway.tls_cert, gateway.tls_key and "+
			"gateway.admin_key_file, or bind it to 127.0.0.1 and reach it through a tunnel", o.Admin)
	}
	o.adminTLS = o.TLS
	return nil
}

// SetAdminKeys replaces the keys that let operators in. Whether any is asked for stays
// as it was at the start.
func (g *Gateway) SetAdminKeys(keys []string) error {
	o := Options{AdminKeys: keys}
	if hadKeys := len(*g.adminKeys.Load()) > 0; hadKeys != (len(keys) > 0) {
		return errors.New("gateway: whether the admin listener asks for a key stays as it was at the start")
	}
	if err := o.checkAdmin(); err != nil {
		return err
	}
	g.adminKeys.Store(digests(keys))
	return nil
}

// AdminURL is where operators come in, or "".
func (g *Gateway) AdminURL() string {
	switch {
	case g.admin == nil:
		return ""
	case g.admin.hasTLS:
		return "https://" + g.AdminAddr()
	}
	return "http://" + g.AdminAddr()
}

// guarded lets in who asks for this host by a name of its own and has a key, where
// keys are asked for: as a bearer, or as the password of whatever user, which browsers
// ask people for and keep to themselves. A key in a URL is none: URLs are logged.
func (g *Gateway) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !g.isOwnName(r) {
			http.Error(w, "this listener answers to 127.0.0.1, [::1] and localhost, and with TLS to its address and the names of its certificate", http.StatusForbidden)
			return
		}
		if isOfAnotherSite(r) {
			http.Error(w, "another site asks", http.StatusForbidden)
			return
		}
		keys := *g.adminKeys.Load()
		if len(keys) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Cache-Control", "no-store")
		if !hasKey(r, keys) {
			h.Set("WWW-Authenticate", `Basic realm="Meridian admin: any name, the key as password", charset="UTF-8"`)
			http.Error(w, "a key is needed: one of gateway.admin_key_file, as Authorization: Bearer KEY, or in a browser as the password of any name", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOfAnotherSite tells whether a browser asks for another site, which may lead people
// here, and do nothing else: not with the key that the browser remembers, and not with
// its place within this host.
func isOfAnotherSite(r *http.Request) bool {
	if new(http.CrossOriginProtection).Check(r) != nil { // what is more than looking
		return true
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// hasKey compares with every key, in a time that tells nothing of it.
func hasKey(r *http.Request, keys []digest) bool {
	given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		_, given, _ = r.BasicAuth()
	}
	sent := sha256.Sum256([]byte(given))
	match := 0
	for i := range keys {
		match |= subtle.ConstantTimeCompare(sent[:], keys[i][:])
	}
	return match == 1
}

// isOwnName tells whether a request was made for this host: a page in a browser must
// not reach the admin listener under a name of its own.
func (g *Gateway) isOwnName(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	ip := net.ParseIP(host)
	if host == "localhost" || ip != nil && ip.IsLoopback() {
		return true
	}
	if r.TLS == nil || g.options.adminTLS == nil {
		return false
	}
	if at, isTCP := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ip != nil && isTCP && (at.IP.Equal(ip) || ip.IsUnspecified()) {
		return true // an address is nobody's name
	}
	leaf := certificateOf(g.options.adminTLS)
	return leaf != nil && leaf.VerifyHostname(host) == nil
}

// certificateOf is the one that is shown now.
func certificateOf(c *tls.Config) *x509.Certificate {
	var shown *tls.Certificate
	switch {
	case c.GetCertificate != nil:
		shown, _ = c.GetCertificate(&tls.ClientHelloInfo{})
	case len(c.Certificates) > 0:
		shown = &c.Certificates[0]
	}
	if shown == nil {
		return nil
	}
	if shown.Leaf != nil || len(shown.Certificate) == 0 {
		return shown.Leaf
	}
	leaf, err := x509.ParseCertificate(shown.Certificate[0])
	if err != nil {
		return nil
	}
	return leaf
}
