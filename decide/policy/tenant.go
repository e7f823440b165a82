package policy

// Tenant is the virtual token counter of those who share an engine.
type Tenant struct {
	// Served counts tokens: 1 for one that is read, 2 for one that is written.
	Served int64
	// Here is how many of its requests the engine has, seen by policies or not.
	Here int32
}

// Join counts a request of a tenant in, and adds the tenant where it is new. One
// that had none here does not live on what it did not use: its counter is at
// least that of the least served of those that are here.
func Join(tenants []Tenant, tenant int32) []Tenant {
	for int(tenant) >= len(tenants) {
		tenants = append(tenants, Tenant{})
	}
	t := &tenants[tenant]
	if t.Here == 0 {
		least, some := int64(0), false
		for i := range tenants {
			if o := &tenants[i]; o.Here > 0 && (!some || o.Served < least) {
				least, some = o.Served, true
			}
		}
		if some {
			t.Served = max(t.Served, least)
		}
	}
	t.Here++
	return tenants
}

// Leave counts a request out that Join counted in.
func (t *Tenant) Leave() { t.Here-- }
