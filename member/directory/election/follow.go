package election

import "meridian/member/directory"

// follow takes in what the directory says, until the watch ends with the
// election or with the directory.
func (e *Election) follow() {
	defer e.end() // no campaign in a directory that is closed
	defer e.watch.Close()
	var view directory.View
	for event := range e.watch.Events() {
		view.Apply(event)
		e.hear(event, &view)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = false
	e.signal()
}

func (e *Election) hear(event directory.Event, view *directory.View) {
	stands, some := view.Get(recordKey(e.options.Key))
	var leader Leader
	if some {
		var err error
		if leader, err = parse(stands); err != nil {
			e.options.Logger.Warn("the leader's record cannot be read", "error", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known != view.Known() || e.leader != leader {
		e.known, e.leader = view.Known(), leader
		e.signal()
	}
	if event.Kind == directory.Unavailable {
		return
	}
	if e.stands != stands.Revision { // 0, if there is none
		e.stands = stands.Revision
		e.signal()
	}
	e.seen = event.Revision
	if e.lease != nil && e.contradicts(e.term) {
		close(e.deposed)
		e.stepDown()
	}
}

// contradicts tells whether the directory has said that the record of a term is
// no more. It needs mu.
func (e *Election) contradicts(term directory.Revision) bool {
	return e.seen >= term && e.stands != term
}

// stepDown ends this process's term. It needs mu.
func (e *Election) stepDown() {
	e.term, e.lease, e.deposed = 0, nil, nil
	e.signal()
}
