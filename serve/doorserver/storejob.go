package doorserver

import (
	"context"
	"os"
	"strings"
	"time"

	"meridian/kv"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// job does an admitted request.
type job func(ctx context.Context) storeReply

// plan checks what a request asks for and says how to do it. It does nothing yet.
func (d *storeRequests) plan(m *doorpb.Store) (job, *door.Problem) {
	tenant := m.GetTenant()
	if len(tenant) > maxKeyBytes {
		return nil, problem(door.CodeTerms, "a tenant of %d bytes, at most %d", len(tenant), maxKeyBytes)
	}
	if p := d.mayTouch(tenant, m); p != nil {
		return nil, p
	}
	switch what := m.GetWhat().(type) {
	case *doorpb.Store_Put:
		return d.planPut(tenant, what.Put)
	case *doorpb.Store_Get:
		return d.planGet(tenant, what.Get)
	case *doorpb.Store_Remove:
		return d.planRemove(tenant, what.Remove)
	case *doorpb.Store_Open:
		return d.planOpen(tenant, what.Open)
	case *doorpb.Store_Write:
		return d.planWrite(tenant, what.Write)
	case *doorpb.Store_Commit:
		return d.planCommit(tenant, what.Commit)
	case *doorpb.Store_Locate:
		return d.planLocate(tenant, what.Locate)
	case *doorpb.Store_Has:
		return d.planHas(tenant, what.Has)
	case *doorpb.Store_List:
		return d.planList(tenant, what.List)
	case *doorpb.Store_Stats:
		return d.stats, nil
	case *doorpb.Store_Evict:
		return d.planEvict(what.Evict)
	case *doorpb.Store_Map:
		return d.planMap()
	}
	return nil, choice(m.ProtoReflect().GetUnknown(), "Store does not say what")
}

// mayTouch keeps clients out of what engines keep: an object that a client wrote there an
// engine would take for a cache. Operators may look, and remove.
func (d *storeRequests) mayTouch(tenant string, m *doorpb.Store) *door.Problem {
	if !strings.HasPrefix(tenant, kv.KeptTenants) {
		return nil
	}
	switch m.GetWhat().(type) {
	case *doorpb.Store_Put, *doorpb.Store_Open:
		return problem(door.CodeDenied, "tenant %.80q is of caches that engines keep, and only they write there; names of other tenants do not begin with %s", tenant, kv.KeptTenants)
	}
	if !d.isOwn() {
		return problem(door.CodeDenied, "tenant %.80q is of caches that engines keep, which are shown to the agent's own user alone", tenant)
	}
	return nil
}

// maxKeyBytes bounds a key and a tenant; the cache bounds both together.
const maxKeyBytes = 1 << 10

func checkKey(key []byte) *door.Problem {
	if len(key) == 0 || len(key) > maxKeyBytes {
		return problem(door.CodeTerms, "a key of %d bytes; there are 1 to %d", len(key), maxKeyBytes)
	}
	return nil
}

func checkKeys(keys [][]byte, most int) *door.Problem {
	if len(keys) == 0 || len(keys) > most {
		return problem(door.CodeTerms, "%d keys; a request of this kind has 1 to %d", len(keys), most)
	}
	for _, key := range keys {
		if p := checkKey(key); p != nil {
			return p
		}
	}
	return nil
}

func (d *storeRequests) cache() Cache { return d.conn.server.options.Cache }

// failed is an outcome without a result.
func failed(err error) storeReply { return storeReply{problem: storeProblem(err)} }

func (d *storeRequests) planLocate(tenant string, m *doorpb.StoreLocate) (job, *door.Problem) {
	return func(ctx context.Context) storeReply {
		place, err := d.cache().Locate(ctx, Object{tenant, m.GetKey()}, time.Duration(m.GetWaitMs())*time.Millisecond)
		if err != nil {
			return failed(err)
		}
		return storeReply{result: &doorpb.StoreResult{Place: place.Message()}}
	}, checkKey(m.GetKey())
}

func (d *storeRequests) planHas(tenant string, m *doorpb.StoreHas) (job, *door.Problem) {
	return func(ctx context.Context) storeReply {
		present, err := d.cache().Has(ctx, tenant, m.GetKeys())
		if err != nil {
			return failed(err)
		}
		return storeReply{result: &doorpb.StoreResult{Present: present}}
	}, checkKeys(m.GetKeys(), door.MaxStoreNames)
}

// isOwn reports whether the client is of the agent's own user.
func (d *storeRequests) isOwn() bool { return d.conn.peer.uid == uint32(os.Geteuid()) }

func (d *storeRequests) planList(tenant string, m *doorpb.StoreList) (job, *door.Problem) {
	switch {
	case len(m.GetPrefix()) > maxKeyBytes || len(m.GetAfter()) > maxKeyBytes:
		return nil, problem(door.CodeTerms, "a prefix of %d bytes and a place of %d; each has at most %d", len(m.GetPrefix()), len(m.GetAfter()), maxKeyBytes)
	case m.GetAllTenants() && !d.isOwn():
		return nil, problem(door.CodeDenied, "objects of all tenants are listed for the agent's own user alone")
	}
	most := min(int(m.GetMost()), door.MaxStoreListed)
	if most == 0 {
		most = door.MaxStoreListed
	}
	return func(ctx context.Context) storeReply {
		l, err := d.cache().List(ctx, door.List{Tenant: tenant, AllTenants: m.GetAllTenants(), Prefix: m.GetPrefix(), After: m.GetAfter(), Most: most})
		if err != nil {
			return failed(err)
		}
		return storeReply{result: &doorpb.StoreResult{Listing: l.Message(m.GetAllTenants())}}
	}, nil
}

func (d *storeRequests) stats(ctx context.Context) storeReply {
	owners, err := d.cache().Stats(ctx)
	if err != nil {
		return failed(err)
	}
	result := &doorpb.StoreResult{}
	for _, o := range owners {
		result.Owners = append(result.Owners, o.Message())
	}
	return storeReply{result: result}
}

func (d *storeRequests) planEvict(m *doorpb.StoreEvict) (job, *door.Problem) {
	if m.GetPermille() > 1000 {
		return nil, problem(door.CodeTerms, "%d thousandths; there are 0 to 1000", m.GetPermille())
	}
	if !d.isOwn() {
		return nil, problem(door.CodeDenied, "objects of all tenants are evicted for the agent's own user alone")
	}
	return func(ctx context.Context) storeReply {
		left, err := d.cache().Evict(ctx, m.GetPermille())
		return storeReply{result: &doorpb.StoreResult{Evicted: left}, problem: storeProblem(err)}
	}, nil
}

func (d *storeRequests) planMap() (job, *door.Problem) {
	if !d.isOwn() {
		return nil, problem(door.CodeDenied, "memory of the object cache is mapped by the agent's own user alone")
	}
	return func(context.Context) storeReply {
		a, err := d.cache().Arena()
		if err != nil {
			return failed(err)
		}
		d.mu.Lock()
		d.maps = true
		d.mu.Unlock()
		told := &doorpb.StoreArena{Owner: a.Owner, Rank: a.Rank, SizeBytes: a.SizeBytes, Writable: a.Writable}
		return storeReply{result: &doorpb.StoreResult{Arena: told}, file: a.File}
	}, nil
}
