package keys

// Availability is what is known of a unit of a chain: who would be asked for it, and in which tier
// that one has it.
type Availability struct {
	// Owner is who has it, by the master or by what owners say of their tiers; "" for none.
	Owner string
	// Silent says that the owner did not answer. Tier is where it has the unit, "" where it
	// has not.
	Silent     bool
	Tier       string
	Bytes      uint64
	AgeSeconds uint64
	Pinned     bool
}

// End is why a path through the cache ends where it does.
type End string

const (
	// EndWhole: every whole unit of the prompt is there.
	EndWhole End = "whole"
	// EndShort: the prompt has no whole unit.
	EndShort End = "short"
	// EndUnknown: no owner has this unit.
	EndUnknown End = "unknown"
	// EndGone: the owner that was named for it has it no more.
	EndGone End = "gone"
	// EndSilent: that owner does not answer.
	EndSilent End = "silent"
	// EndPieces: what follows is at yet another owner, and a run comes from MaxSegments at
	// most.
	EndPieces End = "pieces"
	// EndMaster: the master did not say who has it.
	EndMaster End = "master"
)

// Piece is units First to End of a path: at one owner, in one tier.
type Piece struct {
	UnitRange
	Tier  string
	Bytes uint64
	// OldestSeconds is since when the least recently used of them was not used; of tiers
	// below memory it is not known.
	OldestSeconds uint64
	Pinned        int // how many of them are
}

// LookupPath is what a Find would be told of a chain, found out without one: nothing is leased,
// verified or used.
type LookupPath struct {
	Pieces []Piece
	// Units is how many of the chain are at hand from the first on.
	Units int
	End   End
	// At is the owner that ended it, where one did.
	At string
}

// PathOf follows a chain as far as it is cached. Known is whether the master said who has
// what; without it a unit that no owner is known to have may be somewhere.
func PathOf(units []Availability, known bool) (p LookupPath) {
	if len(units) == 0 {
		p.End = EndShort
		return p
	}
	owners := 0
	for i, u := range units {
		last := len(p.Pieces) - 1
		next := last < 0 || p.Pieces[last].Owner != u.Owner
		switch {
		case u.Owner == "" && known:
			p.End = EndUnknown
		case u.Owner == "":
			p.End = EndMaster
		case u.Silent:
			p.End, p.At = EndSilent, u.Owner
		case u.Tier == "":
			p.End, p.At = EndGone, u.Owner
		case next && owners == MaxSegments:
			p.End, p.At = EndPieces, u.Owner
		}
		if p.End != "" {
			return p
		}
		if next {
			owners++
		}
		if next || p.Pieces[last].Tier != u.Tier {
			p.Pieces = append(p.Pieces, Piece{UnitRange: UnitRange{Owner: u.Owner, First: i, End: i}, Tier: u.Tier})
			last++
		}
		piece := &p.Pieces[last]
		piece.End, p.Units = i+1, i+1
		piece.Bytes += u.Bytes
		piece.OldestSeconds = max(piece.OldestSeconds, u.AgeSeconds)
		if u.Pinned {
			piece.Pinned++
		}
	}
	p.End = EndWhole
	return p
}
