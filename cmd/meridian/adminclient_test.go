package main

import (
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/run/config"
)

// carried is what was sent, in the place of a network.
type carried struct{ authorization string }

func (c *carried) RoundTrip(r *http.Request) (*http.Response, error) {
	c.authorization = r.Header.Get("Authorization")
	return httptest.NewRecorder().Result(), nil
}

// A key is sent only where it cannot be overheard.
func TestAdminKeyIsSentWhereItIsNotOverheard(t *testing.T) {
	for url, want := range map[string]string{
		"https://gateway.example:8081/metrics": "Bearer secret", "HTTPS://10.0.0.1/metrics": "Bearer secret", "http://127.0.0.1:8081/metrics": "Bearer secret",
		"http://[::1]:8081/": "Bearer secret", "http://localhost/": "Bearer secret", "http://gateway.example:8081/metrics": "", "http://10.0.0.1/metrics": "",
		"http://localhost.evil.example/": "", "http://127.0.0.1.evil.example/": "",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		var sent carried
		response, err := (&http.Client{Transport: withKey{"secret", &sent}}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if sent.authorization != want {
			t.Errorf("%s is sent %q, want %q", url, sent.authorization, want)
		}
	}
}

// The certificate of the configuration is trusted, the key of the file is sent, and who
// leads elsewhere does not get it there.
func TestAdminClient(t *testing.T) {
	var came []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came = append(came, r.URL.Path+" "+r.Header.Get("Authorization"))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	dir := t.TempDir()
	files := map[string][]byte{
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), "keys": []byte("# operators\nthe first key of them\nanother\n"),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("MERIDIAN_ADMIN_KEY", "")
	in := &config.Config{Gateway: config.Gateway{TLSCert: filepath.Join(dir, "cert.pem"), AdminKeyFile: filepath.Join(dir, "keys")}}
	for _, key := range []string{"the first key of them", "of the environment"} {
		if key == "of the environment" {
			t.Setenv("MERIDIAN_ADMIN_KEY", key)
		}
		client, err := adminClient(in)
		if err != nil {
			t.Fatal(err)
		}
		came = nil
		response, err := client.Get(server.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		client.CloseIdleConnections()
		if len(came) != 1 || came[0] != "/metrics Bearer "+key {
			t.Errorf("%q", came)
		}
	}
	in.Gateway.TLSCert = config.None
	client, err := adminClient(in)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := client.Get(server.URL); err == nil {
		response.Body.Close()
		t.Error("a certificate that the configuration does not name is trusted")
	}
}

// An agent that can write to the directory is not told the key of the admin listener.
func TestAdminKeyIsNotForRecords(t *testing.T) {
	got := make(map[string]string)
	server := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got[name] = r.Header.Get("Authorization") }))
		t.Cleanup(s.Close)
		return s
	}
	thief, ours := server("thief"), server("ours")
	t.Setenv("MERIDIAN_ADMIN_KEY", "the key of the operators")
	in := &config.Config{Gateway: config.Gateway{TLSCert: config.None, AdminListen: strings.TrimPrefix(ours.URL, "http://")}}
	operator, err := adminClient(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*httptest.Server{thief, ours} {
		response, err := clientFor(s.URL+"/metrics", operator, in).Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	if want := map[string]string{"thief": "", "ours": "Bearer the key of the operators"}; !maps.Equal(got, want) {
		t.Errorf("%q was sent, want %q", got, want)
	}
	for record, keyed := range map[string]bool{"https://10.0.0.1:8081/metrics": true, "http://10.0.0.1:8081/metrics": false, "http://127.0.0.1:1/metrics": false, "::": false} {
		pinned := &config.Config{Gateway: config.Gateway{TLSCert: "cert.pem", AdminListen: "127.0.0.1:8081"}}
		if _, is := clientFor(record, operator, pinned).Transport.(withKey); is != keyed {
			t.Errorf("%s: asked with the key: %v, want %v", record, is, keyed)
		}
	}
}
