package keys

import "meridian/internal/fields"

// Used tells an owner that units which it has were used, by who had them all the same or asks
// another for how they go on. It is not answered. A chain that lies at several owners is used
// as a whole: else what it begins with would leave, and leave the rest without a beginning.
type Used struct{ Units Chain }

func (*Used) kind() uint8 { return kindUsed }

func (m *Used) each(c fields.Codec) {
	m.Units.each(c)
	c.Demand(len(m.Units.Keys) > 0)
}

// ReadsUsed reports whether an agent that reads messages up to a kind reads Used.
func ReadsUsed(lastKind int) bool { return lastKind >= kindUsed }

// maxUsedAt is how many owners hear of one use.
const maxUsedAt = 2 * MaxSegments

// UsedAt is what each owner has of a chain but for one that knows by itself; of owners that have
// it, only the first few.
func UsedAt(c Chain, have []string, self string) map[string]Chain {
	at := make(map[string]Chain)
	for i, owner := range have {
		_, known := at[owner]
		if owner == "" || owner == self || !known && len(at) == maxUsedAt {
			continue
		}
		at[owner] = Chain{Tenant: c.Tenant, Keys: append(at[owner].Keys, c.Keys[i])}
	}
	return at
}
