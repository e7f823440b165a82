package sim

import "meridian/keep/store/storesim"

// playStore plays a world of the object cache.
func (s *reusable) playStore(o Options) *Result {
	lived := storesim.Run(o.Seed)
	r := &Result{
		Options: o, world: lived.World, state: lived.State, story: s.story,
		Tally: Tally{Worlds: 1, Events: lived.Tally.Events, Simulated: lived.Simulated, Store: lived.Tally},
	}
	s.story = nil // the result's, until it is given back
	for _, e := range lived.Story {
		r.story = append(r.story, entry{at: e.At, format: e.Format, args: e.Args})
	}
	if v := lived.Violation; v != nil {
		r.Violation = &Violation{Rule: v.Rule, What: v.What, At: v.At, Event: v.Event}
	}
	return r
}

func storeSections(t *storesim.Tally) []section {
	var all []section
	for _, s := range t.Sections() {
		one := section{title: s.Title}
		for _, c := range s.Counts {
			one.rows = append(one.rows, row{c.Name, c.N})
		}
		all = append(all, one)
	}
	return all
}
