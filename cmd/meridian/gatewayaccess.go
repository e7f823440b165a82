package main

import (
	"crypto/x509"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"meridian/run/cell/openaiclient"
	"meridian/run/config"
)

// gatewayAccess is how who runs a cell comes in at its gateway.
type gatewayAccess struct {
	// key is one that the gateway takes, and keyInShell stands for it there, so
	// that it is not shown; both are empty where none is asked for.
	key, keyInShell string
	// certificate is what the gateway shows, from certificateFile; nil where it
	// has no TLS.
	certificate     *x509.Certificate
	certificateFile string
}

func newEntrance(in *config.Config) (*gatewayAccess, error) {
	e := &gatewayAccess{key: keyOfEnvironment(), keyInShell: "${MERIDIAN_API_KEY%%[, ]*}"}
	if e.key == "" {
		e.key, e.keyInShell = keyOfFile(in.Gateway.APIKeyFile)
	}
	if in.Gateway.TLSCert == config.None {
		return e, nil
	}
	var err error
	if e.certificateFile, err = filepath.Abs(in.Gateway.TLSCert); err != nil {
		return nil, err
	}
	if e.certificate, err = openaiclient.ReadCertificate(e.certificateFile); err != nil {
		return nil, invalid("name a file with the certificate in PEM, or none", "gateway.tls_cert: %w", err)
	}
	return e, nil
}

// keyOfEnvironment is the first of the keys that a gateway takes from there.
func keyOfEnvironment() string {
	first, _, _ := strings.Cut(os.Getenv("MERIDIAN_API_KEY"), ",")
	key, _, _ := strings.Cut(first, " ") // behind it is whose it is
	return key
}

// keyOfFile is the first API key of a file, and what reads it in a shell.
func keyOfFile(path string) (key, inShell string) {
	line := lineOfFile(path)
	if line == "" {
		return "", ""
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		whole = path
	}
	return strings.Fields(line)[0], "$(awk '!/^ *#/ && NF {print $1; exit}' " + quoted(whole) + ")" // behind it is whose it is
}

// lineOfFile is the first line of a file that says something, "" where there is none.
func lineOfFile(path string) string {
	if path == config.None {
		return ""
	}
	text, _ := os.ReadFile(path) // the gateway complains, where it matters
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line
		}
	}
	return ""
}

// client talks to the gateway at a URL.
func (e *gatewayAccess) client(gateway string) *openaiclient.Client {
	c := &openaiclient.Client{URL: gateway, Key: e.key}
	if e.certificate != nil {
		c.HTTP = openaiclient.Trusting(e.certificate)
	}
	return c
}

// curl is a command that asks the gateway at a URL. What it says is long enough
// to be handed over, which the headers of the answer tell.
func (e *gatewayAccess) curl(gateway, model string) string {
	flags, key := "", ""
	if e.certificate != nil {
		flags = " --cacert " + quoted(e.certificateFile)
		if name, address := e.nameOf(gateway); name != "" {
			flags, gateway = flags+" --connect-to "+quoted("::"+address), "https://"+name
		}
	}
	if e.keyInShell != "" {
		key = ` -H "Authorization: Bearer ` + e.keyInShell + `"`
	}
	name, _ := json.Marshal(model) // a string always can be
	body := `{"model": ` + string(name) + `, "messages": [{"role": "user", "content": ` +
		`"Tell me a story about a lighthouse keeper who reads the same old letter every evening, before the lamp is lit."}], "max_tokens": 60, "stream": true}`
	return "curl -iN" + flags + " " + gateway + "/v1/chat/completions -H 'Content-Type: application/json'" + key + " \\\n            -d " + quoted(body)
}

// nameOf is a name of the certificate, and the address to find it at, where
// the certificate is not for the address itself.
func (e *gatewayAccess) nameOf(gateway string) (name, address string) {
	at, err := url.Parse(gateway)
	if err != nil || e.certificate.VerifyHostname(at.Hostname()) == nil {
		return "", ""
	}
	whole := func(name string) bool { return !strings.Contains(name, "*") }
	if i := slices.IndexFunc(e.certificate.DNSNames, whole); i >= 0 {
		return e.certificate.DNSNames[i], at.Host
	}
	return "", ""
}
