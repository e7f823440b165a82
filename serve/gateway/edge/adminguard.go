package edge

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
)

// GuardAdmin lets in who asks for this host by a name of its own, or with TLS by one of its
// certificate's, and has a key, where
// keys are asked for: as a bearer, or as the password of whatever user, which browsers
// ask people for and keep to themselves. A key in a URL is none: URLs are logged.
func (k *Keys) GuardAdmin(next http.Handler, secure *tls.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !isOwnName(r, secure) {
			http.Error(w, "this listener answers to 127.0.0.1, [::1] and localhost, and with TLS to its address and the names of its certificate", http.StatusForbidden)
			return
		}
		if isOfAnotherSite(r) {
			http.Error(w, "another site asks", http.StatusForbidden)
			return
		}
		if !k.Any() {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Cache-Control", "no-store")
		if !k.has(givenBy(r)) {
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

// givenBy is the key that an operator's request has.
func givenBy(r *http.Request) string {
	given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		_, given, _ = r.BasicAuth()
	}
	return given
}

// isOwnName tells whether a request was made for this host: a page in a browser must
// not reach the admin listener under a name of its own.
func isOwnName(r *http.Request, secure *tls.Config) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	ip := net.ParseIP(host)
	if host == "localhost" || ip != nil && ip.IsLoopback() {
		return true
	}
	if r.TLS == nil || secure == nil {
		return false
	}
	if at, isTCP := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ip != nil && isTCP && (at.IP.Equal(ip) || ip.IsUnspecified()) {
		return true // an address is no site's name
	}
	leaf := certificateOf(secure)
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
