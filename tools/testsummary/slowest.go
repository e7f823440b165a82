package main

import (
	"cmp"
	"fmt"
	"slices"
)

const slowestShown = 20

// printSlowest shows where the time of this run went.
func printSlowest(all []result) {
	list := slowest(all, slowestShown)
	if len(list) == 0 {
		return
	}
	fmt.Printf("the slowest %d:\n", len(list))
	for _, r := range list {
		fmt.Printf("%8.1fs %s\n", r.took.Seconds(), r.name)
	}
}

// slowest are the n tests that took longest, the longest first: tests that ran,
// not those whose result was kept, and not those that only have subtests.
func slowest(all []result, n int) []result {
	parents := make(map[string]bool)
	for _, r := range all {
		for i, c := range r.name {
			if c == '/' {
				parents[r.name[:i]] = true
			}
		}
	}
	ran := slices.DeleteFunc(slices.Clone(all), func(r result) bool {
		return r.cached || r.verdict == skipped || r.took == 0 || parents[r.name]
	})
	slices.SortStableFunc(ran, func(a, b result) int { return cmp.Compare(b.took, a.took) })
	return ran[:min(n, len(ran))]
}

// unchangedPackages counts those whose results Go kept, of all with tests.
func unchangedPackages(all []result) (unchanged, packages int) {
	cached := make(map[string]bool)
	for _, r := range all {
		if r.pkg != "" {
			cached[r.pkg] = r.cached
		}
	}
	for _, c := range cached {
		if c {
			unchanged++
		}
	}
	return unchanged, len(cached)
}
