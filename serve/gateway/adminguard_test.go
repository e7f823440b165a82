package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const adminKey = "an operator's key, long enough"

// Beyond loopback the admin listener lets in by TLS, under its own names, who has a
// key; however a stranger asks, nothing is shown.
func TestAdminBeyondLoopback(t *testing.T) {
	c, _, transport := secured(t, func(o *Options) { o.Admin, o.AdminKeys = "0.0.0.0:0", []string{adminKey, adminKey + " too"} })
	_, port, err := net.SplitHostPort(c.AdminAddr())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.AdminURL(); got != "https://"+c.AdminAddr() {
		t.Errorf("it is at %s", got)
	}
	c.client.Transport = transport()
	type ask struct {
		host, path string
		header     map[string]string
	}
	basic := func(name, key string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+key))
	}
	bearer := map[string]string{"Authorization": "Bearer " + adminKey}
	for name, test := range map[string]struct {
		ask
		want int
	}{
		"bearer":              {ask{"", "/debug/engines", bearer}, 200},
		"the other key":       {ask{"", "/health", map[string]string{"Authorization": "Bearer " + adminKey + " too"}}, 200},
		"a browser":           {ask{"", "/debug/engines", map[string]string{"Authorization": basic("anybody", adminKey), "Sec-Fetch-Site": "same-origin"}}, 200},
		"led here":            {ask{"", "/debug/engines", map[string]string{"Authorization": basic("", adminKey), "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}}, 200},
		"the name":            {ask{"gateway.example:" + port, "/debug/engines", bearer}, 200},
		"another site":        {ask{"", "/debug/pprof/profile", map[string]string{"Authorization": basic("", adminKey), "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}}, 403},
		"another name":        {ask{"evil.example", "/debug/engines", bearer}, 403},
		"another address":     {ask{"10.0.0.1:" + port, "/debug/engines", bearer}, 403},
		"no key":              {ask{"", "/debug/engines", nil}, 401},
		"no key, health":      {ask{"", "/health", nil}, 401},
		"no key, metrics":     {ask{"", "/metrics", nil}, 401},
		"empty key":           {ask{"", "/debug/engines", map[string]string{"Authorization": "Bearer "}}, 401},
		"half a key":          {ask{"", "/debug/engines", map[string]string{"Authorization": "Bearer " + adminKey[:20]}}, 401},
		"the key as the name": {ask{"", "/debug/engines", map[string]string{"Authorization": basic(adminKey, "")}}, 401},
		"garbled":             {ask{"", "/debug/engines", map[string]string{"Authorization": "Basic !"}}, 401},
		"in the query":        {ask{"", "/debug/engines?key=" + url.QueryEscape(adminKey) + "&api_key=" + url.QueryEscape(adminKey) + "&access_token=" + url.QueryEscape(adminKey), nil}, 401},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = test.host
		for key, value := range test.header {
			request.Header.Set(key, value)
		}
		r := c.do(request)
		if r.err != nil || r.status != test.want {
			t.Errorf("%s: %d, %v, want %d", name, r.status, r.err, test.want)
			continue
		}
		if asks := r.header.Get("WWW-Authenticate") != ""; asks != (test.want == 401) || r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", name, r.header)
		}
		if test.want == 200 && r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: may be kept: %v", name, r.header)
		}
		if test.want != 200 && (strings.Contains(string(r.body), adminKey) || strings.Contains(string(r.body), `"engines"`)) {
			t.Errorf("%s: it shows %s", name, r.body)
		}
	}
}

// Who comes without TLS to where it is wanted is told so, and shown nothing.
func TestAdminByPlainHTTP(t *testing.T) {
	c, _, _ := secured(t, func(o *Options) { o.Admin, o.AdminKeys = "0.0.0.0:0", []string{adminKey} })
	_, port, _ := net.SplitHostPort(c.AdminAddr())
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /debug/engines HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + adminKey + "\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("%s", response.Status)
	}
}

// A key is asked for at loopback, too, where one is given; keys change while it runs.
func TestAdminKeysChange(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.AdminKeys = []string{adminKey} })
	status := func(key string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.AdminURL()+"/debug/engines", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		return c.do(request).status
	}
	if got := []int{status(adminKey), status("")}; got[0] != 200 || got[1] != 401 {
		t.Errorf("before: %v", got)
	}
	for _, keys := range [][]string{nil, {"short"}} {
		if err := c.SetAdminKeys(keys); err == nil {
			t.Errorf("%q are taken", keys)
		}
	}
	if err := c.SetAdminKeys([]string{"another key of an operator"}); err != nil {
		t.Fatal(err)
	}
	if got := []int{status(adminKey), status("another key of an operator")}; got[0] != 401 || got[1] != 200 {
		t.Errorf("after: %v", got)
	}
}

// What does more than look is not done for a page that is only open in a browser of this host.
func TestAdminAskedByAnotherSite(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	for name, test := range map[string]struct {
		method string
		header map[string]string
		want   bool // that it is let in
	}{
		"a program":          {http.MethodPost, nil, true},
		"the page itself":    {http.MethodPost, map[string]string{"Sec-Fetch-Site": "same-origin"}, true},
		"a link":             {http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, true},
		"a picture":          {http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, false},
		"a form":             {http.MethodPost, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, false},
		"an older browser's": {http.MethodPost, map[string]string{"Origin": "https://evil.example"}, false},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, c.AdminURL()+"/debug/engines", nil)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range test.header {
			request.Header.Set(key, value)
		}
		if r := c.do(request); (r.status != http.StatusForbidden) != test.want {
			t.Errorf("%s: %d", name, r.status)
		}
	}
}

func TestAdminRefusesToBeOpen(t *testing.T) {
	for name, o := range map[string]Options{
		"neither": {}, "no key": {TLS: &tls.Config{}}, "no TLS": {AdminKeys: []string{adminKey}}, "insecure": {Insecure: true, AdminKeys: []string{adminKey}},
		"short key": {TLS: &tls.Config{}, AdminKeys: []string{"guess me"}},
	} {
		o.Listen, o.Admin = "127.0.0.1:0", "0.0.0.0:0"
		if err := o.checkListen(); err == nil || !strings.Contains(err.Error(), "admin listener") {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := Options{Listen: "127.0.0.1:0", Admin: "0.0.0.0:0", TLS: &tls.Config{}, AdminKeys: []string{adminKey}}
	if err := o.checkListen(); err != nil {
		t.Error(err)
	}
}
