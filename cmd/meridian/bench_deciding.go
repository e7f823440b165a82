package main

import "fmt"

// movedBench is what a measurement of a room that decides was called until the rooms had
// benchmarks of their own.
type movedBench struct {
	Words []string `arg:"" optional:"" hidden:""`
}

// Run tells where the measurement is.
func (c *movedBench) Run() error {
	return &failure{
		err:  fmt.Errorf("rooms that decide are measured by their own benchmarks"),
		hint: "`make bench-deciding` in a checkout of Meridian runs them", status: exitInvalid,
	}
}
