package mutant

import "slices"

// The bugs of a hand-off, which the simulation of hand-offs must catch.
const (
	DigestIgnored    Name = "plan-digest-ignored"
	LeaseNotRenewed  Name = "lease-not-renewed"
	ReleasedEarly    Name = "released-before-all-followers-are-quiet"
	ReadyEarly       Name = "ready-before-all-ranks"
	FailureForgotten Name = "failure-of-one-rank-forgotten"
	FreedTwice       Name = "freed-twice"
	FreedUnquiet     Name = "freed-before-it-is-quiet"
	LateOrderObeyed  Name = "late-order-obeyed"
	SilenceIgnored   Name = "silent-destination-kept-for-ever"
	LayersUnseen     Name = "layers-moved-before-they-are-computed"
	TokensUnseen     Name = "chunks-moved-before-they-are-computed"
	BlocksCutUp      Name = "blocks-moved-before-they-are-full"
	OlderOverrun     Name = "older-build-told-of-chunks"
	FirstIgnored     Name = "read-before-the-first-token-that-is-held"
	UnitsNeverLeft   Name = "units-held-after-their-last-reader"
)

// OfHandOffs lists them.
func OfHandOffs() []Name { return slices.Clone(ofHandOffs) }

var ofHandOffs = []Name{
	DigestIgnored, LeaseNotRenewed, ReleasedEarly, ReadyEarly, FailureForgotten, FreedTwice, FreedUnquiet, LateOrderObeyed,
	SilenceIgnored, LayersUnseen, TokensUnseen, BlocksCutUp, OlderOverrun, FirstIgnored, UnitsNeverLeft,
}
