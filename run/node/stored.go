package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"meridian/internal/clip"
	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/member/trust"
)

// StoredObject is a piece of a prefix that an owner keeps, as its agent tells of it. What lies
// below memory tells neither its size nor its age.
type StoredObject struct {
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

// stored are the pieces that this agent's owner keeps under keys that begin so: those in
// memory, and where a key is whole and none of them has it, those in tiers below. Nothing
// counts as use.
func (n *Agent) stored(ctx context.Context, beginning string) ([]StoredObject, error) {
	if n.Store == nil || !strings.HasPrefix(beginning, keys.KeyPrefix) {
		return nil, nil
	}
	if _, keeps := n.Store.Kept(); !keeps {
		return nil, nil
	}
	names, models := prefix.NamesOf(n.proof.key.Derive(trust.ForTickets)), make(map[string]string)
	for _, k := range n.prefixEngines() {
		models[names.ModelTag(kv.Scope{Model: k.Model, Revision: k.Revision}).String()] = k.Model
	}
	modelOf := func(key string) string {
		tag, _ := keys.TagOf(key)
		return models[tag.String()]
	}
	var all []StoredObject
	from := store.ListPlace{Owner: n.Name()}
	for len(all) < maxStored {
		objects, next, err := n.Store.ListPage(ctx, store.ListOptions{AllTenants: true, Prefix: beginning, Most: 512}, from)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if o.Owner == n.Name() && len(all) < maxStored { // another is next where the directory does not list this one
				all = append(all, StoredObject{
					Key: o.Key, Tenant: o.Tenant, Owner: o.Owner, Tier: store.Memory, Model: modelOf(o.Key), Bytes: o.Bytes, Checksum: fmt.Sprintf("%016x", o.Checksum),
					AgeSeconds: o.AgeSeconds, Readers: o.Readers, Priority: o.Priority, Pinned: o.Pinned,
				})
			}
		}
		if from = next; next.Owner != n.Name() {
			break
		}
	}
	if _, whole := keys.TagOf(beginning); !whole || slices.ContainsFunc(all, func(o StoredObject) bool { return o.Key == beginning }) {
		return all, nil
	}
	// Tiers are asked by name: of the tenants that this agent knows.
	tenants := []string{names.TenantOf("")}
	if n.Prefixes != nil {
		for _, u := range n.Prefixes.Uses() {
			if u.Tenant != keys.Others && !slices.Contains(tenants, u.Tenant) {
				tenants = append(tenants, u.Tenant)
			}
		}
	}
	for _, tenant := range tenants {
		seen, err := n.Store.Inspect(ctx, n.Name(), store.Run{Tenant: tenant, Keys: []string{beginning}})
		if err != nil {
			return all, err
		}
		if seen[0].Tier != "" {
			all = append(all, StoredObject{Key: beginning, Tenant: tenant, Owner: n.Name(), Tier: seen[0].Tier, Model: modelOf(beginning)})
		}
	}
	return all, nil
}

// canBeStored bounds what another agent tells of an object.
func canBeStored(o *StoredObject) bool {
	for _, text := range []*string{&o.Tenant, &o.Owner, &o.Tier, &o.Model, &o.Checksum} {
		*text = clip.Text(*text, maxToldText, "…")
	}
	return strings.HasPrefix(o.Key, keys.KeyPrefix) && len(o.Key) <= maxToldText
}

// String tells of an object as `meridian explain` does.
func (o *StoredObject) String() string {
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
