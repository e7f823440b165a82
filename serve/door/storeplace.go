package door

import (
	"strings"

	"meridian/serve/door/doorpb"
)

// Wish is what the writer of an object wants besides.
type Wish struct {
	// Owner is the rank of the owner that is to have it; nil is no wish.
	Owner    *uint32
	PageSize uint32 // 0 for the cache's
	Pinned   bool
	Priority uint8 // the lowest leave first
}

func (w Wish) message() *doorpb.StoreWish {
	m := &doorpb.StoreWish{PageBytes: w.PageSize, Pinned: w.Pinned, Priority: uint32(w.Priority)}
	if w.Owner != nil {
		m.Owner = *w.Owner + 1
	}
	return m
}

// ParseWish reads a wish.
func ParseWish(m *doorpb.StoreWish) (w Wish, p *Problem) {
	if m.GetPriority() > 255 {
		return w, &Problem{Code: CodeTerms, Message: "a priority is one of 0 to 255"}
	}
	w = Wish{PageSize: m.GetPageBytes(), Pinned: m.GetPinned(), Priority: uint8(m.GetPriority())}
	if owner := m.GetOwner(); owner > 0 {
		owner--
		w.Owner = &owner
	}
	return w, nil
}

// Place is where an object lies, or is to lie.
type Place struct {
	Owner string // the name of its agent
	Rank  int32  // of that name; -1: not known, the owner has just gone
	// Mapped says that it lies in what Map gives.
	Mapped                      bool
	KeyHash                     uint64
	Header, Epoch               uint32
	HeaderOffset, PayloadOffset uint64
	SizeBytes                   uint64
	PageSize, Pages             uint32
	Checksum                    uint64 // of what is ready
	Name                        []byte // the key as it stands in the arena
}

// Message is a place as the door has it.
func (p Place) Message() *doorpb.StorePlace {
	return &doorpb.StorePlace{
		Owner: valid(p.Owner), Rank: p.Rank, Mapped: p.Mapped, KeyHash: p.KeyHash, Header: p.Header, Epoch: p.Epoch, HeaderOffset: p.HeaderOffset,
		PayloadOffset: p.PayloadOffset, SizeBytes: p.SizeBytes, PageBytes: p.PageSize, Pages: p.Pages, Checksum: p.Checksum, Name: p.Name,
	}
}

func placeOf(m *doorpb.StorePlace) Place {
	return Place{
		Owner: m.GetOwner(), Rank: m.GetRank(), Mapped: m.GetMapped(), KeyHash: m.GetKeyHash(), Header: m.GetHeader(), Epoch: m.GetEpoch(),
		HeaderOffset: m.GetHeaderOffset(), PayloadOffset: m.GetPayloadOffset(), SizeBytes: m.GetSizeBytes(), PageSize: m.GetPageBytes(), Pages: m.GetPages(),
		Checksum: m.GetChecksum(), Name: m.GetName(),
	}
}

// valid makes a text writable that another machine may have written.
func valid(text string) string { return strings.ToValidUTF8(text, "?") }

// List is what is to be listed: keys with a prefix, of one tenant or of all.
type List struct {
	Tenant     string
	AllTenants bool
	Prefix     []byte
	After      []byte // Next of the listing before
	Most       int    // 0 for MaxStoreListed
}

// Listing is objects. Next is where to go on, empty at the end.
type Listing struct {
	Objects []Listed
	Next    []byte
}

// Listed is one object.
type Listed struct {
	Tenant     string // where all were asked for
	Key        []byte
	SizeBytes  uint64
	Checksum   uint64
	AgeSeconds uint64 // since it was last asked for
	Rank       int32  // of its owner; -1: not known
}

// Message is a listing as the door has it, in columns.
func (l Listing) Message(allTenants bool) *doorpb.StoreListing {
	m := &doorpb.StoreListing{Next: l.Next}
	for i := range l.Objects {
		o := &l.Objects[i]
		m.Keys, m.Sizes, m.Checksums = append(m.Keys, o.Key), append(m.Sizes, o.SizeBytes), append(m.Checksums, o.Checksum)
		m.Ages, m.Ranks = append(m.Ages, o.AgeSeconds), append(m.Ranks, o.Rank)
		if allTenants {
			m.Tenants = append(m.Tenants, []byte(o.Tenant))
		}
	}
	return m
}

func listingOf(m *doorpb.StoreListing) (l Listing, ok bool) {
	n := len(m.GetKeys())
	if len(m.GetSizes()) != n || len(m.GetChecksums()) != n || len(m.GetAges()) != n || len(m.GetRanks()) != n || len(m.GetTenants()) != 0 && len(m.GetTenants()) != n {
		return l, false
	}
	l.Next = m.GetNext()
	for i, key := range m.GetKeys() {
		o := Listed{Key: key, SizeBytes: m.GetSizes()[i], Checksum: m.GetChecksums()[i], AgeSeconds: m.GetAges()[i], Rank: m.GetRanks()[i]}
		if len(m.GetTenants()) > 0 {
			o.Tenant = string(m.GetTenants()[i])
		}
		l.Objects = append(l.Objects, o)
	}
	return l, true
}

// OwnerStats is how one owner of objects stands.
type OwnerStats struct {
	Name string
	Rank uint32
	Here bool // it is the agent that was asked
	// Problem says that it did not answer; the rest is missing then.
	Problem                                        string
	HeapUsed, HeapTotal, Ready, Writing, RingDepth uint64
	Hits, Misses, Evictions, Reclaims, Timeouts    uint64
	Refused, OutOfMemory, BytesIn, BytesOut        uint64
	CASFailures                                    uint64 // words of the arena that a program was faster at
	PageTimeNs                                     uint64 // the mean for one page
	ArenaBytes                                     uint64 // its memory, with headers
}

// Message is it as the door has it.
func (o OwnerStats) Message() *doorpb.StoreOwner {
	return &doorpb.StoreOwner{
		Name: valid(o.Name), Rank: o.Rank, Here: o.Here, Problem: writable(o.Problem), HeapUsed: o.HeapUsed, HeapTotal: o.HeapTotal, Ready: o.Ready,
		Writing: o.Writing, RingDepth: o.RingDepth, Hits: o.Hits, Misses: o.Misses, Evictions: o.Evictions, Reclaims: o.Reclaims,
		Timeouts: o.Timeouts, Refused: o.Refused, OutOfMemory: o.OutOfMemory, BytesIn: o.BytesIn, BytesOut: o.BytesOut,
		CasFailures: o.CASFailures, PageTimeNs: o.PageTimeNs, ArenaBytes: o.ArenaBytes,
	}
}

func ownerStatsOf(m *doorpb.StoreOwner) OwnerStats {
	return OwnerStats{
		Name: m.GetName(), Rank: m.GetRank(), Here: m.GetHere(), Problem: m.GetProblem(), HeapUsed: m.GetHeapUsed(), HeapTotal: m.GetHeapTotal(), Ready: m.GetReady(),
		Writing: m.GetWriting(), RingDepth: m.GetRingDepth(), Hits: m.GetHits(), Misses: m.GetMisses(), Evictions: m.GetEvictions(), Reclaims: m.GetReclaims(),
		Timeouts: m.GetTimeouts(), Refused: m.GetRefused(), OutOfMemory: m.GetOutOfMemory(), BytesIn: m.GetBytesIn(), BytesOut: m.GetBytesOut(),
		CASFailures: m.GetCasFailures(), PageTimeNs: m.GetPageTimeNs(), ArenaBytes: m.GetArenaBytes(),
	}
}
