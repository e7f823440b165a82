package policy

// Decision is what the next steps do. Indexes are those of Snapshot.Requests.
type Decision struct {
	// Run computes tokens. A request that is Waiting in the snapshot is admitted by it.
	Run []Allotment
	// Victims give blocks up, or only their turn.
	Victims []Victim
	// Recall brings the blocks of those Away back.
	Recall []int32
	// Force ends the thought of these with this step.
	Force []int32
	// Steps is for how many steps the decision holds, 1 at least: a policy that
	// is asked again before would say the same, as long as nothing happens but
	// that those who run decode. An arrival, an end, a change of phase, blocks
	// that became free or copies that arrived end it.
	Steps int32
	// Until ends it, too, unless it is 0: it holds for no step that begins at
	// that moment or later, but for one step in any case.
	Until Instant
}

// Allotment is work: so many tokens of a request.
type Allotment struct{ Request, Tokens int32 }

// Victim stops.
type Victim struct {
	Request int32
	Reclaim Reclaim
	Reason  Reason
}

// Reclaim is the way in which blocks are taken from a victim.
type Reclaim uint8

const (
	// Recompute forgets them; all tokens found so far are computed again later.
	Recompute Reclaim = iota
	// Offload copies them out, and then frees them.
	Offload
	// Keep leaves them where they are: the request pauses.
	Keep
)

var reclaimNames = [...]string{"recompute", "offload", "keep"}

func (r Reclaim) String() string {
	if int(r) >= len(reclaimNames) {
		return "unknown reclaim"
	}
	return reclaimNames[r]
}

// Reason says why a victim was chosen.
type Reason uint8

const (
	// LastCame: it came last of those who hold blocks.
	LastCame Reason = iota
	// Thinking: no user reads it yet, and it was served least recently.
	Thinking
	// Ahead: its reader has tokens left to read.
	Ahead
	// Answering: there was no other; it is the last resort.
	Answering
	// Quantum: its turn is over.
	Quantum
	// Demoted: it has thought for so long that others go first.
	Demoted
)

var reasonNames = [...]string{"last_came", "thinking", "ahead", "answering", "quantum", "demoted"}

func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		return "unknown reason"
	}
	return reasonNames[r]
}

// reset forgets what was decided and keeps the memory.
func (d *Decision) reset() {
	d.Run, d.Victims, d.Recall, d.Force = d.Run[:0], d.Victims[:0], d.Recall[:0], d.Force[:0]
	d.Steps, d.Until = 1, 0
}
