package agent

import (
	"context"
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
// became of all. A peer that is
// refused without end may not fill the log: beyond refusalsPerSecond the lines
// are counted, and the count is told with the next one.
type audit struct {
	logger *slog.Logger
	clock  fabric.Clock

	mu         sync.Mutex // protects the rest
	counts     Audit
	second     time.Time
	lines      int
	suppressed int
}

const refusalsPerSecond = 10

func (u *audit) note(level slog.Level, what string, attributes ...any) {
	u.mu.Lock()
	switch what {
	case "granted":
		u.counts.Granted++
	case "revoked":
		u.counts.Revoked++
	case "refused":
		u.counts.Refused++
	case "fenced":
		u.counts.Fenced++
	case "checksum failed":
		u.counts.ChecksumFailures++
	}
	log := true
	if what == "refused" {
		now := u.clock.Now()
		if now.Sub(u.second) >= time.Second {
			u.second, u.lines = now, 0
		}
		if u.lines++; u.lines > refusalsPerSecond {
			u.suppressed++
			log = false
		} else if u.suppressed > 0 {
			attributes = append(attributes, "not_logged_before", u.suppressed)
			u.suppressed = 0
		}
	}
	u.mu.Unlock()
	if log {
		u.logger.Log(context.Background(), level, what, append([]any{"audit", true}, attributes...)...)
	}
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
