package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// Audit counts what an operator must be able to ask about afterwards.
type Audit struct {
	Granted          uint64 `metric:"meridian_agent_audit_events_total,granted"`
	Revoked          uint64 `metric:"meridian_agent_audit_events_total,revoked"`
	Refused          uint64 `metric:"meridian_agent_audit_events_total,refused"`
	Fenced           uint64 `metric:"meridian_agent_audit_events_total,fenced"`
	ChecksumFailures uint64 `metric:"meridian_agent_audit_events_total,checksum_failed"`
}

// audit turns such events into a counter and a log line each, which is for who
// debugs where it tells of one grant among many: the granter says in one line what
// became of all.
type audit struct {
	logger *slog.Logger
	clock  fabric.Clock

	mu          sync.Mutex // protects the rest
	counts      Audit
	refusals    fewLines
	unreadables fewLines
}

// fewLines are of what peers can cause without end, who may not fill the log: beyond
// linesPerSecond they are counted, and the count is told with the next one.
type fewLines struct {
	second     time.Time
	lines      int
	suppressed int
}

const linesPerSecond = 10

// next reports whether one may be logged, and how many before it were not.
func (f *fewLines) next(now time.Time) (suppressed int, log bool) {
	if now.Sub(f.second) >= time.Second {
		f.second, f.lines = now, 0
	}
	if f.lines++; f.lines > linesPerSecond {
		f.suppressed++
		return 0, false
	}
	suppressed, f.suppressed = f.suppressed, 0
	return suppressed, true
}

func (u *audit) note(level slog.Level, what string, attributes ...any) {
	u.mu.Lock()
	suppressed, log := 0, true
	switch what {
	case "granted":
		u.counts.Granted++
	case "revoked":
		u.counts.Revoked++
	case "refused":
		u.counts.Refused++
		suppressed, log = u.refusals.next(u.clock.Now())
	case "fenced":
		u.counts.Fenced++
	case "checksum failed":
		u.counts.ChecksumFailures++
	case "a message cannot be read": // the room that it is for counts it
		suppressed, log = u.unreadables.next(u.clock.Now())
	}
	u.mu.Unlock()
	if suppressed > 0 {
		attributes = append(attributes, "not_logged_before", suppressed)
	}
	if log {
		u.logger.Log(context.Background(), level, what, append([]any{"audit", true}, attributes...)...)
	}
}

// Unreadable tells the log of a notification that the room which hears it cannot read.
func (a *Agent) Unreadable(n fabric.Notification, err error) {
	a.audit.note(slog.LevelWarn, "a message cannot be read", "peer", n.From, "magic", fmt.Sprintf("%.4q", n.Payload), "error", err)
}

func (u *audit) snapshot() Audit {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts
}

// guard is the agent as its fabrics ask it what a peer may touch.
type guard Agent

// Admit looks into the table of grants.
func (g *guard) Admit(access fabric.Access) error {
	a := (*Agent)(g)
	if access.Grant == (kv.ID{}) && access.Peer == a.options.Name && access.Incarnation == a.incarnation {
		return nil // it is this agent itself, and has proven it; a grant that is named counts
	}
	err := a.grants.admit(access, a.options.Clock.Now())
	if err != nil {
		a.audit.note(slog.LevelWarn, "refused", "peer", access.Peer, "op", access.Op.String(), "grant", short(access.Grant), "error", err.Error())
	}
	return err
}

// SumsOf looks into it, too.
func (g *guard) SumsOf(grant kv.ID) *fabric.Sums { return (*Agent)(g).grants.sumsOf(grant) }
