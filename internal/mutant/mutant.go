// Package mutant knows bugs, to test the tests: the simulations must catch each
// of them. The code that ships has none of them in it. An edit puts a bug where it
// would be made, Overlay applies them all to copies of the files, and a build
// with that overlay has every bug; the environment variable MERIDIAN_MUTANT
// chooses which one it shows.
package mutant

import (
	"os"
	"slices"
)

// Name is one bug.
type Name string

// The bugs, each named after what it breaks.
const (
	NoEpochCheck        Name = "no-epoch-check"
	AckEarly            Name = "ack-before-the-last-byte"
	PartMiscounted      Name = "done-before-the-last-part"
	CancelNotQuiet      Name = "cancel-without-quiescence"
	CancelDone          Name = "done-for-a-cancelled-transfer"
	DeadlineIgnored     Name = "deadline-ignored"
	NotifyTwice         Name = "notification-twice"
	NotifyEarly         Name = "notification-before-data"
	NoticeLost          Name = "notification-not-delivered"
	ReceiptsForgotten   Name = "receipts-that-wait-are-forgotten"
	ChecksumIgnored     Name = "checksum-ignored"
	StaleIncarnation    Name = "stale-incarnation-accepted"
	ReferenceLeak       Name = "reference-leak"
	FenceNotQuiet       Name = "fence-does-not-stop-what-runs"
	PreparedOutlives    Name = "prepared-request-outlives-a-fence"
	RepeatExecuted      Name = "repeat-executed-twice"
	TouchedCalledNot    Name = "touched-reported-as-untouched"
	AnswersForgotten    Name = "a-part-takes-its-siblings-answers"
	AnswersKept         Name = "answers-kept-after-a-cancel"
	GrantNotChecked     Name = "grant-not-checked"
	GrantSpansIgnored   Name = "grant-spans-not-checked"
	GrantExpiryIgnored  Name = "grant-expiry-ignored"
	RevokeNotQuiet      Name = "revoke-does-not-stop-what-runs"
	LostNotSubmitted    Name = "lost-link-reported-as-not-submitted"
	DuplicateAckCounted Name = "duplicate-ack-counted"
	DoneNotQuiet        Name = "done-while-bytes-leave"
	ReadKept            Name = "read-heard-twice-stays"
	LoanKept            Name = "lent-memory-is-not-taken-back"
	LoanNotLookedAt     Name = "done-without-a-last-look-at-the-flag"
)

// Names lists them all.
func Names() []Name { return slices.Clone(names) }

var names = []Name{
	NoEpochCheck, AckEarly, PartMiscounted, CancelNotQuiet, CancelDone, DeadlineIgnored, NotifyTwice, NotifyEarly, NoticeLost, ReceiptsForgotten,
	ChecksumIgnored, StaleIncarnation, ReferenceLeak, FenceNotQuiet, PreparedOutlives, RepeatExecuted, TouchedCalledNot,
	AnswersForgotten, AnswersKept, GrantNotChecked, GrantSpansIgnored, GrantExpiryIgnored, RevokeNotQuiet, LostNotSubmitted,
	DuplicateAckCounted, DoneNotQuiet, ReadKept, LoanKept, LoanNotLookedAt,
}

var chosen = choose(Name(os.Getenv("MERIDIAN_MUTANT")))

func choose(n Name) Name {
	if n != "" && !slices.Contains(slices.Concat(names, ofHandOffs, ofStore), n) {
		panic("mutant: MERIDIAN_MUTANT names no bug: " + string(n))
	}
	return n
}

// Is reports whether this is the bug that was chosen.
func Is(n Name) bool { return n == chosen }
