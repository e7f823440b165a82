package admission

// Place is where an object of a run is.
type Place uint8

const (
	// Nowhere: it must be computed, and so must all that follow it.
	Nowhere Place = iota
	// Memory: it can be read.
	Memory
	// Cold: a tier has it.
	Cold
	// Coming: it is on its way from a tier to memory.
	Coming
)

// Ahead is which objects of a run are to be fetched from a tier now, the first first, so
// that no more than most are on their way: the rest of a run comes while its head is
// loaded. What lies behind an object that is nowhere is of no use.
func Ahead(run []Place, most int) (fetch []int) {
	for i, place := range run {
		switch place {
		case Nowhere:
			return fetch
		case Coming:
			most--
		case Cold:
			if len(fetch) < most {
				fetch = append(fetch, i)
			}
		}
		if len(fetch) >= most {
			return fetch
		}
	}
	return fetch
}
