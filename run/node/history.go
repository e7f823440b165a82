package node

import (
	"context"

	"meridian/keep/prefix"
	"meridian/keep/prefix/survey"
	"meridian/member/trust"
	"meridian/move/agent/peerquery"
	"meridian/move/transceiver/handoff"
	"meridian/see/history"
)

// openHistory opens what the agent remembers. Who comes for one question leaves no files.
func (n *Agent) openHistory(o AgentOptions) (err error) {
	records := history.Options{Agent: o.Name, Logger: o.Logger}
	if o.Door != nil {
		records.Dir = o.StateDir
	}
	n.History, err = history.Open(records)
	return err
}

// handOffEnded tells of a hand-off, also what measures how long fetches take.
func (n *Agent) handOffEnded(r *handoff.Record) {
	n.History.HandOffEnded(r)
	if n.Prefixes != nil { // it was there before any engine
		n.Prefixes.Ended(r)
	}
}

// openQuestions begins to answer what other agents ask, and to ask them.
func (n *Agent) openQuestions(ctx context.Context, o AgentOptions) (err error) {
	about := survey.Options{Agent: n.Name(), Store: n.Store, Cache: n.Prefixes, Directory: n.Directory, Names: prefix.NamesOf(n.identity.Key.Derive(trust.ForTickets))}
	book := o.book
	if n.Door != nil {
		about.Scope = n.Door.Scope
	}
	n.Survey = survey.New(about)
	if n.Door != nil {
		book = n.History.Book(history.BookOptions{
			Agent: n.Agent, Transceiver: n.Transceiver, Store: n.Store, Prefixes: n.Prefixes, Survey: n.Survey, Build: o.Build,
			Engines: func() (all, serving int) { m := n.Door.Metrics(); return m.Engines, m.Serving },
		})
	}
	n.Questions, err = peerquery.Open(ctx, peerquery.Options{Agent: n.Agent, Book: book, Directory: n.Directory, Logger: o.Logger})
	return err
}
