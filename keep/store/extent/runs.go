package extent

import (
	"iter"
	"slices"
	"sort"
)

// runs are extents by address, in short rows. A change moves the rest of one row,
// however many runs there are: producers decide in which order they are claimed.
type runs struct{ rows [][]ID }

const rowLength = 128

// place is where a run stands in its rows.
type place struct{ row, at int }

// append puts a run behind all others.
func (r *runs) append(id ID) {
	if last := len(r.rows) - 1; last >= 0 && len(r.rows[last]) < rowLength {
		r.rows[last] = append(r.rows[last], id)
		return
	}
	r.rows = append(r.rows, append(make([]ID, 0, rowLength+1), id))
}

// search is the first run that has what those behind it have, too.
func (r *runs) search(has func(ID) bool) (place, bool) {
	row := sort.Search(len(r.rows), func(n int) bool { return has(r.rows[n][len(r.rows[n])-1]) })
	if row == len(r.rows) {
		return place{}, false
	}
	return place{row, sort.Search(len(r.rows[row]), func(n int) bool { return has(r.rows[row][n]) })}, true
}

func (r *runs) get(p place) ID { return r.rows[p.row][p.at] }

// replace puts runs, or none, in the place of one.
func (r *runs) replace(p place, with ...ID) {
	row := slices.Replace(r.rows[p.row], p.at, p.at+1, with...)
	r.rows[p.row] = row
	switch half := len(row) / 2; {
	case len(row) == 0:
		r.rows = slices.Delete(r.rows, p.row, p.row+1)
	case len(row) > rowLength:
		r.rows[p.row] = row[:half]
		r.rows = slices.Insert(r.rows, p.row+1, append(make([]ID, 0, rowLength+1), row[half:]...))
	}
}

// all are the runs by address.
func (r *runs) all() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for _, row := range r.rows {
			for _, id := range row {
				if !yield(id) {
					return
				}
			}
		}
	}
}
