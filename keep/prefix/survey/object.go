package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"meridian/internal/clip"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
)

// Object is a piece of a prefix that an owner keeps, as its agent tells of it. What lies
// below memory tells neither its size nor its age.
type Object struct {
	Key    string `json:"key"`
	Tenant string `json:"tenant"`
	Owner  string `json:"owner"`
	Tier   string `json:"tier"`
	// Model is its name where an engine of the agent has said it.
	Model      string `json:"model,omitempty"`
	Bytes      uint64 `json:"bytes,omitempty"`
	Checksum   string `json:"checksum,omitempty"`
	AgeSeconds uint64 `json:"age_seconds,omitempty"`
	Readers    uint16 `json:"readers,omitempty"`
	Priority   uint8  `json:"priority,omitempty"`
	Pinned     bool   `json:"pinned,omitempty"`
}

// maxStored is how many objects one agent tells of: who finds more says more of the key.
const maxStored = 64

// objects are the pieces that this agent's owner keeps under keys that begin so: those in
// memory, and where a key is whole and none of them has it, those in tiers below. Nothing
// counts as use.
func (s *Survey) objects(ctx context.Context, beginning string) ([]Object, error) {
	if s.Store == nil || !strings.HasPrefix(beginning, keys.KeyPrefix) {
		return nil, nil
	}
	if _, keeps := s.Store.Kept(); !keeps {
		return nil, nil
	}
	models := make(map[string]string) // by tag
	for _, k := range s.engines() {
		models[k.tag(s.Names)] = k.Model
	}
	modelOf := func(key string) string {
		tag, _ := keys.TagOf(key)
		return models[tag.String()]
	}
	var all []Object
	if err := s.eachKept(ctx, beginning, func(o *store.Object) (more bool) {
		all = append(all, Object{
			Key: o.Key, Tenant: o.Tenant, Owner: o.Owner, Tier: store.Memory, Model: modelOf(o.Key), Bytes: o.Bytes, Checksum: fmt.Sprintf("%016x", o.Checksum),
			AgeSeconds: o.AgeSeconds, Readers: o.Readers, Priority: o.Priority, Pinned: o.Pinned,
		})
		return len(all) < maxStored
	}); err != nil {
		return nil, err
	}
	if _, whole := keys.TagOf(beginning); !whole || slices.ContainsFunc(all, func(o Object) bool { return o.Key == beginning }) {
		return all, nil
	}
	// Tiers are asked by name: of the tenants that this agent knows.
	tenants := []string{s.Names.TenantOf("")}
	if s.Cache != nil {
		for _, u := range s.Cache.Uses() {
			if u.Tenant != keys.Others && !slices.Contains(tenants, u.Tenant) {
				tenants = append(tenants, u.Tenant)
			}
		}
	}
	for _, tenant := range tenants {
		seen, err := s.Store.Inspect(ctx, s.Agent, store.Run{Tenant: tenant, Keys: []string{beginning}})
		if err != nil {
			return all, err
		}
		if seen[0].Tier != "" {
			all = append(all, Object{Key: beginning, Tenant: tenant, Owner: s.Agent, Tier: seen[0].Tier, Model: modelOf(beginning)})
		}
	}
	return all, nil
}

// maxText bounds each text of an object that another agent tells of.
const maxText = 256

// Bound cuts what another agent tells of an object, and reports whether it can be one.
func (o *Object) Bound() bool {
	for _, text := range []*string{&o.Tenant, &o.Owner, &o.Tier, &o.Model, &o.Checksum} {
		*text = clip.Text(*text, maxText, "…")
	}
	return strings.HasPrefix(o.Key, keys.KeyPrefix) && len(o.Key) <= maxText
}

// String tells of an object as `meridian explain` does.
func (o *Object) String() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s\n", o.Key)
	row("is", "a piece of a prompt's KV cache, kept for prompts of its tenant that begin alike")
	if o.Model != "" {
		row("model", "%s", o.Model)
	}
	row("tenant", "%s", o.Tenant)
	row("owner", "%s", o.Owner)
	if o.Tier != store.Memory {
		row("lies", "in %s, from where it is brought to memory when it is asked for", cmp.Or(o.Tier, "a tier without a name"))
		return b.String()
	}
	row("lies", "in memory")
	row("bytes", "%d", o.Bytes)
	row("checksum", "%s", o.Checksum)
	row("age", "%d s since it was last asked for", o.AgeSeconds)
	row("readers", "%d", o.Readers)
	row("priority", "%d", o.Priority)
	if o.Pinned {
		row("pinned", "yes: it stays until it is let go, or its owner ends")
	} else {
		row("pinned", "no: it leaves when room is needed, what was not asked for longest first")
	}
	return b.String()
}
