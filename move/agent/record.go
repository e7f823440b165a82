package agent

import (
	"fmt"
	"strings"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// Record is what is kept of a transfer: who, what, how, how long, and why.
type Record struct {
	ID kv.ID `json:"id"`
	// PartOf is the hand-off that it was a part of; zeros are none.
	PartOf      kv.ID        `json:"part_of,omitzero"`
	Op          fabric.Op    `json:"op"`
	Peer        string       `json:"peer"`
	Incarnation kv.ID        `json:"incarnation"`
	Fabric      string       `json:"fabric"` // of the last attempt
	Choices     []Choice     `json:"choices"`
	Attempts    []Attempt    `json:"attempts"`
	Bytes       uint64       `json:"bytes"`
	Pieces      uint64       `json:"pieces"`
	State       fabric.State `json:"state"`
	Error       string       `json:"error,omitempty"`
	Hint        string       `json:"hint,omitempty"` // what to do about Error
	Times       fabric.Times `json:"times"`
}

// Attempt is one fabric's try at a transfer.
type Attempt struct {
	Fabric string       `json:"fabric"`
	State  fabric.State `json:"state"`
	Error  string       `json:"error,omitempty"`
	Times  fabric.Times `json:"times"`
}

func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "transfer %s: %v, %d bytes in %d pieces, with %s (incarnation %s)\n", r.ID, r.Op, r.Bytes, r.Pieces, r.Peer, r.Incarnation)
	fmt.Fprintf(&b, "  state     %v", r.State)
	if r.Error != "" {
		fmt.Fprintf(&b, ": %s", strings.ReplaceAll(r.Error, "\n", "; "))
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "\n  hint      %s", r.Hint)
	}
	fmt.Fprintf(&b, "\n  fabric    %s (%s)\n", r.Fabric, describe(r.Choices))
	if r.PartOf != (kv.ID{}) {
		fmt.Fprintf(&b, "  part of   hand-off %s\n", r.PartOf)
	}
	if len(r.Attempts) > 1 {
		for i, a := range r.Attempts {
			fmt.Fprintf(&b, "  attempt %d %s\n", i+1, a)
		}
	}
	stage := func(name string, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			fmt.Fprintf(&b, "  %-9s %v\n", name, to.Sub(from).Round(time.Microsecond))
		}
	}
	stage("submit", r.Times.Posted, r.Times.Submitted)
	stage("total", r.Times.Posted, r.Times.Ended)
	if took := r.Times.Ended.Sub(r.Times.Posted); r.State == fabric.Done && took > 0 {
		fmt.Fprintf(&b, "  rate      %.2f GB/s\n", float64(r.Bytes)/float64(took))
	}
	return b.String()
}

func (a Attempt) String() string {
	text := fmt.Sprintf("%s: %v", a.Fabric, a.State)
	if !a.Times.Ended.IsZero() {
		text += fmt.Sprintf(" after %v", a.Times.Ended.Sub(a.Times.Posted).Round(time.Microsecond))
	}
	if a.Error != "" {
		text += ": " + a.Error
	}
	return text
}

// describe says of each fabric why it stands where it does.
func describe(choices []Choice) string {
	parts := make([]string, len(choices))
	for i, c := range choices {
		switch {
		case c.Refused != "":
			parts[i] = fmt.Sprintf("%s: %s", c.Fabric, c.Refused)
		case c.Measured:
			parts[i] = fmt.Sprintf("%s: measured, expected %v", c.Fabric, c.Expected.Round(time.Microsecond))
		default:
			parts[i] = fmt.Sprintf("%s: preference %d", c.Fabric, c.Preference)
		}
	}
	return strings.Join(parts, "; ")
}
