package workload

// Unread is of sources that read nothing: there is nothing to fail, and nothing to close.
type Unread struct{}

// Err is nil.
func (Unread) Err() error { return nil }

// Close does nothing.
func (Unread) Close() error { return nil }

// List is a workload in memory.
type List struct {
	Unread
	Requests []Request
	given    int
}

// Next returns the next request.
func (l *List) Next() (Request, bool) {
	if l.given == len(l.Requests) {
		return Request{}, false
	}
	l.given++
	return l.Requests[l.given-1], true
}
