package workload

import (
	"errors"
	"fmt"
	"strings"
)

// mixed has the arrivals, prompts and prefixes of one workload and the thoughts
// and answers of another. When the other ends, it begins again from another
// seed.
type mixed struct {
	Source
	name    string
	options Options
	lengths Source
	err     error
}

func openMixed(arrivals, lengths string, o Options) (Source, Info, error) {
	if strings.Contains(lengths, "+") && !isFile(lengths) {
		return nil, Info{}, fmt.Errorf("%w: two workloads can be mixed, not more", ErrOptions)
	}
	first, info, err := open(arrivals, o)
	if err != nil {
		return nil, Info{}, err
	}
	m := &mixed{Source: first, name: lengths, options: o}
	m.options.Start, m.options.Duration, m.options.Scale = 0, 0, 1
	var other Info
	if m.lengths, other, err = open(lengths, m.options); err != nil {
		return nil, Info{}, errors.Join(err, first.Close())
	}
	info.Synthetic = true
	info.Sample = info.Sample || other.Sample
	info.Label = fmt.Sprintf("synthetic mix: arrivals and prompts of %s; thoughts and answers of %s", info.Label, other.Label)
	if other.Licence != "" && other.Licence != info.Licence {
		info.Licence = strings.TrimPrefix(info.Licence+", "+other.Licence, ", ")
	}
	info.MeanThink, info.MeanOutput = other.MeanThink, other.MeanOutput
	return m, info, nil
}

// Next returns the next request.
func (m *mixed) Next() (Request, bool) {
	r, more := m.Source.Next()
	if !more || m.err != nil {
		return Request{}, false
	}
	l, more := m.lengths.Next()
	if !more {
		if m.err = m.lengths.Err(); m.err == nil {
			m.options.Seed++
			m.lengths, _, m.err = open(m.name, m.options)
		}
		if m.err == nil {
			l, more = m.lengths.Next()
		}
		if !more {
			return Request{}, false
		}
	}
	r.Think, r.Output, r.Converged = l.Think, l.Output, l.Converged
	return r, true
}

// Err is what ended either.
func (m *mixed) Err() error { return errors.Join(m.err, m.Source.Err()) }

// Close closes both.
func (m *mixed) Close() error { return errors.Join(m.Source.Close(), m.lengths.Close()) }
