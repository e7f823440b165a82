package gateway

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/member/directory"
	"meridian/member/trust"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/warm"
	"meridian/serve/openai"
)

// legIn is the leg in a request that an engine got; zero: there is none.
func legIn(t *testing.T, s *stub, asked stubRequest) (leg trust.Leg) {
	t.Helper()
	params, _ := asked.body["kv_transfer_params"].(map[string]any)
	text, has := params["meridian_leg"].(string)
	if !has {
		return leg
	}
	sealed, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		leg, err = trust.OpenLeg(sealed, s.key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return leg
}

// Legs say whose request they are of: by the name of its API key, or else as a tenant of that key
// alone, which does not tell the key; also of a request that one engine serves, which keeps and
// finds for it. An agent of a build before gets no such leg.
func TestLegsSayWhoseRequestTheyAreOf(t *testing.T) {
	long := strings.Repeat("t", trust.MaxTenantBytes)
	for _, reads := range []int{0, trust.RequestLegVersion, trust.LegVersion} {
		d := openDirectory(t)
		c := newCell(t, 1, 1, func(o *Options) {
			o.Backends, o.Directory, o.APIKeys = nil, d, []string{"one team", "another\tteam", "long " + long, "mine", "yours"}
		})
		for role, s := range map[string]*stub{"prefill": c.prefill[0], "decode": c.decode[0]} {
			publish(t, d, directory.EngineRecord{ID: s.id, Incarnation: "1", URL: s.server.URL, Role: role, Model: "m", Legs: reads})
		}
		c.until("both serve", func() bool {
			return c.Metrics().Engines["decode"].Up == 1 && c.Metrics().Engines["prefill"].Up == 1
		})
		tenants := make(map[string]string)
		for _, key := range []string{"one", "another", "long", "mine", "yours"} {
			for _, prompt := range []string{"short", "a prompt of more than sixteen tokens, however they are counted by whoever counts them: " + key} {
				request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.Addr()+openai.PathCompletions, strings.NewReader(completion(prompt, "")))
				request.Header.Set("Authorization", "Bearer "+key)
				if r := c.do(request); r.status != http.StatusOK {
					t.Fatalf("%d %s", r.status, r.body)
				}
				for _, s := range slices.Concat(c.prefill, c.decode) {
					all := s.seen()
					if len(all) == 0 {
						continue
					}
					leg := legIn(t, s, all[len(all)-1])
					if reads < trust.LegVersion && leg.Tenant != "" || reads == trust.LegVersion && (leg.Tenant == "" || leg.Engine != s.id) {
						t.Errorf("to an agent that reads version %d: %+v", reads, leg)
					}
					if prompt == "short" {
						tenants[key] = leg.Tenant
					} else if leg.Tenant != tenants[key] && s == c.decode[0] {
						t.Errorf("%s is %q and %q", key, tenants[key], leg.Tenant)
					}
				}
			}
		}
		if len(c.prefill[0].seen()) == 0 {
			t.Error("nothing was prefilled")
		}
		if reads < trust.LegVersion {
			continue
		}
		if tenants["one"] != "team" || tenants["another"] != "team" || tenants["long"] != long {
			t.Errorf("named tenants are %q", tenants)
		}
		if a, b := tenants["mine"], tenants["yours"]; a == b || !strings.HasPrefix(a, "key-") || !strings.HasPrefix(b, "key-") {
			t.Errorf("keys without a name are of the tenants %q and %q", a, b)
		}
		if err := c.SetAPIKeys([]string{"one other", "mine"}); err != nil {
			t.Error(err)
		}
		c.computesAhead(t, "team")
	}
}

// computesAhead: what is computed ahead of a tenant's next turn is that tenant's.
func (c *testCell) computesAhead(t *testing.T, tenant string) {
	t.Helper()
	s := c.decode[0]
	e := c.roster.Get(s.id + "@1")
	_, trouble := c.warmer.ComputePrompt(t.Context(), e, warm.PromptLeg{Path: openai.PathCompletions, Body: []byte(completion("short", "")), Tenant: tenant})
	if trouble != nil {
		t.Fatal(trouble.Fault)
	}
	all := s.seen()
	if leg := legIn(t, s, all[len(all)-1]); leg.Tenant != tenant || leg.Engine != s.id {
		t.Errorf("of what is computed ahead: %+v", leg)
	}
}

// A line of the key file has a key, and the name of a tenant or none; what is more is refused, as
// it may be a mistake that gives one tenant's share to another.
func TestTenantsInKeyFiles(t *testing.T) {
	c := newCell(t, 0, 1, func(o *Options) { o.APIKeys = []string{"one"} })
	for _, line := range []string{"", " team", "\tteam"} { // whose key is empty
		if err := c.SetAPIKeys([]string{line}); err == nil {
			t.Errorf("%q lets in clients that send no key", line)
		}
	}
	file := filepath.Join(t.TempDir(), "keys")
	for text, ok := range map[string]bool{
		"# keys\none team\ntwo\n": true, "one\tteam \n": true, "one my team\n": false, "one te\x01am\n": false, "one " + strings.Repeat("t", 65): false, "one \xff\n": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Listen: "127.0.0.1:0", Backends: c.options.Backends}
		files := edge.KeyFiles{API: file, Logger: discard}
		if err := files.Read(&o.APIKeys, &o.AdminKeys); err != nil {
			t.Fatal(err)
		}
		if err := o.complete(); (err == nil) != ok {
			t.Errorf("%q at the start: %v", text, err)
		}
		if err := files.Reload(c.SetAPIKeys, c.SetAdminKeys); (err == nil) != ok {
			t.Errorf("%q read again: %v", text, err)
		}
	}
}
