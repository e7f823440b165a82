package keys

import (
	"cmp"
	"slices"
	"strings"

	"meridian/internal/clip"
)

// Use is what came of the Finds and Keeps of one model and tenant.
type Use struct {
	// Model is as its engines call it, Tenant as its objects' tenant is called. Both are
	// Others where there were too many to be told apart.
	Model, Tenant string
	// Finds, and those that found something; tokens that were asked for, and found.
	Finds       uint64 `metric:"meridian_cache_model_finds_total,miss" less:"Hits"`
	Hits        uint64 `metric:"meridian_cache_model_finds_total,hit"`
	TokensAsked uint64 `metric:"meridian_cache_model_tokens_total,missed" less:"TokensFound"`
	TokensFound uint64 `metric:"meridian_cache_model_tokens_total,found"`
	// FoundIn are the tokens that were found by where they were, in the order of Tiers.
	FoundIn [len(Tiers)]uint64
	// Keeps, and what they wrote.
	Keeps, UnitsKept, BytesKept uint64
}

// Tiers are where tokens that were found can have been, as it is counted; the last is for what
// an owner did not say, and for tiers of other names.
var Tiers = [...]string{"memory", "disk", "s3", "unknown"}

// TierNumber is the place of a tier in Tiers.
func TierNumber(name string) int {
	if i := slices.Index(Tiers[:], name); i >= 0 {
		return i
	}
	return len(Tiers) - 1
}

// Others is the model and tenant of what is not told apart.
const Others = "(others)"

const (
	// MaxUses is how many models and tenants are told apart.
	MaxUses  = 64
	maxModel = 128
)

func (u *Use) add(o Use) {
	u.Finds, u.Hits, u.TokensAsked, u.TokensFound = u.Finds+o.Finds, u.Hits+o.Hits, u.TokensAsked+o.TokensAsked, u.TokensFound+o.TokensFound
	for i := range u.FoundIn {
		u.FoundIn[i] += o.FoundIn[i]
	}
	u.Keeps, u.UnitsKept, u.BytesKept = u.Keeps+o.Keeps, u.UnitsKept+o.UnitsKept, u.BytesKept+o.BytesKept
}

// Tally counts uses by model and tenant: of the most used ones each alone, of the others
// together. Nothing that was counted is lost. The zero value has counted nothing.
type Tally struct {
	by     map[[2]string]*Use
	others Use
}

// Add counts a use. Who is least used makes room for one that is new.
func (t *Tally) Add(u Use) {
	u.Model = clip.Text(u.Model, maxModel, "…")
	key := [2]string{u.Model, u.Tenant}
	if known := t.by[key]; known != nil {
		known.add(u)
		return
	}
	if t.by == nil {
		t.by = make(map[[2]string]*Use)
	}
	if len(t.by) == MaxUses {
		var least *Use
		for _, one := range t.by {
			if least == nil || order(one, least) < 0 {
				least = one
			}
		}
		t.others.add(*least)
		delete(t.by, [2]string{least.Model, least.Tenant})
	}
	t.by[key] = &u
}

// order is the less used one first.
func order(a, b *Use) int {
	return cmp.Or(cmp.Compare(a.Finds+a.Keeps, b.Finds+b.Keeps), strings.Compare(a.Model, b.Model), strings.Compare(a.Tenant, b.Tenant))
}

// Uses are all that were counted, the most used first, Others last.
func (t *Tally) Uses() []Use {
	all := make([]Use, 0, len(t.by)+1)
	for _, u := range t.by {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Use) int { return order(&b, &a) })
	if t.others != (Use{}) {
		o := t.others
		o.Model, o.Tenant = Others, Others
		all = append(all, o)
	}
	return all
}

// MaxModels is how many models are told apart in metrics.
const MaxModels = 32

// ModelTally counts uses by model alone: of the first ones each, of those that come later
// together, so that what was counted for one never becomes less. The zero value has counted
// nothing.
type ModelTally struct {
	uses []Use
}

// Add counts a use.
func (t *ModelTally) Add(u Use) {
	u.Model, u.Tenant = clip.Text(strings.ToValidUTF8(u.Model, "?"), maxModel, "…"), ""
	if !slices.ContainsFunc(t.uses, func(known Use) bool { return known.Model == u.Model }) && len(t.uses) >= MaxModels {
		u.Model = Others
	}
	for i := range t.uses {
		if t.uses[i].Model == u.Model {
			t.uses[i].add(u)
			return
		}
	}
	t.uses = append(t.uses, u)
}

// Uses are all that were counted, in the order in which they came.
func (t *ModelTally) Uses() []Use { return slices.Clone(t.uses) }
