package sim

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"meridian/internal/seeded"
	"meridian/move/mrdn"
)

// entry is one thing that happened. It is kept as it was said and put into words
// only when it is printed; what it refers to must not change.
type entry struct {
	seeded.Entry
	process  *process  // nil: the world
	transfer *transfer // nil: none in particular
}

// note adds to the story.
func (w *world) note(p *process, t *transfer, format string, args ...any) {
	w.story = append(w.story, entry{seeded.Entry{At: w.now, Format: format, Args: args}, p, t})
}

func (e *entry) String() string {
	who, what := "·", "    "
	if e.process != nil {
		who = e.process.String()
	}
	if e.transfer != nil {
		what = e.transfer.String()
	}
	return fmt.Sprintf("%13.3fms  %-5s %-5s %s", float64(e.At)/float64(time.Millisecond), who, what, fmt.Sprintf(e.Format, e.Args...))
}

// noteFrame tells of a frame that was heard.
func (w *world) noteFrame(p *process, kind mrdn.LinkFrame, body []byte) {
	switch kind {
	case mrdn.BeginFrame:
		if b, err := mrdn.ParseBegin(body); err == nil {
			w.note(p, w.transfers[b.ID], "hears Begin, part %d of %d, %d bytes", b.Part+1, b.Parts, b.Bytes)
		}
	case mrdn.AckFrame:
		if a, err := mrdn.ParseAck(body); err == nil {
			part, untouched := fmt.Sprintf("part %d", a.Part+1), ""
			if a.Part == mrdn.NoticeAck {
				part = "the notification"
			}
			if a.Untouched {
				untouched = ", untouched"
			}
			w.note(p, w.transfers[a.ID], "hears Ack of %s: code %d%s %s", part, a.Code, untouched, a.Message)
		}
	case mrdn.CancelFrame:
		if c, err := mrdn.ParseCancel(body); err == nil {
			w.note(p, w.transfers[c.ID], "hears Cancel")
		}
	case mrdn.NoticeFrame:
		if n, err := mrdn.ParseNotice(body); err == nil {
			w.note(p, w.transfers[n.ID], "hears Notice %s", string(n.Payload))
		}
	}
}

// Lines is the whole story, an event a line.
func (r *Result) Lines() []string {
	lines := make([]string, len(r.story))
	for i := range r.story {
		lines[i] = strings.ReplaceAll(r.story[i].String(), "\n", " ")
	}
	return lines
}

// Tell writes what led to a violation: what concerns its transfer, and whatever
// else happened to the processes that it is between, the last so many events.
func (r *Result) Tell(out io.Writer, most int) error {
	b := bufio.NewWriter(out)
	v := r.Violation
	fmt.Fprintf(b, "seed %d breaks a promise, %v after its start.\n\n  promise: %s\n  instead: %s\n\n", r.Options.Seed, v.At, v.Rule, v.What)
	fmt.Fprintf(b, "the world: %s\n\nwhat happened:\n", r.world)
	var told []int
	for i := min(v.Event, len(r.story)) - 1; i >= 0 && len(told) < most; i-- {
		if r.concerns(&r.story[i]) {
			told = append(told, i)
		}
	}
	if len(told) == most {
		fmt.Fprintf(b, "  (earlier events are left out; --trace FILE writes all %d)\n", len(r.story))
	}
	for i := range told {
		fmt.Fprintf(b, "  %s\n", &r.story[told[len(told)-1-i]])
	}
	fmt.Fprintf(b, "\nhow things stood:\n%s\nto see it again: meridian sim%s --seed %d%s\n", r.state, r.Options.worldFlag(), r.Options.Seed, r.Options.faultFlag())
	return b.Flush()
}

// concerns reports whether an event belongs to the story of the violation.
func (r *Result) concerns(e *entry) bool {
	t := r.about
	switch {
	case t == nil:
		return true
	case e.transfer != nil:
		return e.transfer == t
	}
	return e.process == nil || e.process == t.from || e.process == t.to
}

func (o *Options) worldFlag() string {
	if o.World == "" || o.World == Agents {
		return ""
	}
	return " --world " + string(o.World)
}

func (o *Options) faultFlag() string {
	if o.Faults == nil {
		return ""
	}
	return " --faults " + o.faultNames()
}
