package mutant

import "slices"

// The bugs of the object cache, which the simulation of it must catch.
const (
	ServesUnleased   Name = "served-without-a-lease"
	CommitsUnleased  Name = "stored-without-a-lease"
	SealsUnrevoked   Name = "sealed-before-the-grant-is-revoked"
	FreesUnrevoked   Name = "freed-before-the-grant-is-revoked"
	LateClaimCounts  Name = "late-claim-counts"
	DropNotObeyed    Name = "order-to-drop-not-obeyed"
	LateDropObeyed   Name = "late-order-to-drop-obeyed"
	OldMasterLocates Name = "old-master-says-where"
	LeaseFromLater   Name = "lease-counted-from-a-later-question"
	DropSharesSerial Name = "drop-shares-the-serial-of-a-claim"
	DropNotTold      Name = "drop-not-told-to-the-master"
	EpochNotCounted  Name = "epoch-of-a-header-not-counted"
	ReadIsFreed      Name = "freed-while-it-is-read"
	PutRepeated      Name = "put-repeated-when-in-doubt"
	GivenForgotten   Name = "key-given-away-is-forgotten"
	GivenUnmarked    Name = "key-given-away-before-the-mark"
	WriterKept       Name = "silent-writer-kept-for-ever"
	DoubtIsBelieved  Name = "revocation-in-doubt-believed"
	ClaimCalledValue Name = "claimed-key-is-said-to-exist"
	UnclaimedIsFound Name = "producers-object-found-before-its-key-is-claimed"
	FreesUnfetched   Name = "room-freed-while-the-owner-still-reads-into-it"
	UnfetchedIsFound Name = "object-found-whose-source-was-taken-back"
	HoldIsEvicted    Name = "object-evicted-while-it-is-held"
	HoldKept         Name = "hold-kept-for-ever"
	TierNotSpared    Name = "tier-that-fails-is-asked-on"
	TierGivenUp      Name = "tier-that-failed-is-never-tried-again"
	FetchedBehind    Name = "fetched-behind-what-is-nowhere"
	AdmittedAtOnce   Name = "written-to-a-tier-at-its-first-use"
)

// OfStore lists them.
func OfStore() []Name { return slices.Clone(ofStore) }

var ofStore = []Name{
	ServesUnleased, CommitsUnleased, SealsUnrevoked, FreesUnrevoked, LateClaimCounts, DropNotObeyed, LateDropObeyed,
	OldMasterLocates, LeaseFromLater, DropSharesSerial, DropNotTold, EpochNotCounted, ReadIsFreed, PutRepeated, GivenForgotten,
	GivenUnmarked, WriterKept, UnclaimedIsFound, ClaimCalledValue, DoubtIsBelieved, FreesUnfetched, UnfetchedIsFound,
	HoldIsEvicted, HoldKept, TierNotSpared, TierGivenUp, FetchedBehind, AdmittedAtOnce,
}
