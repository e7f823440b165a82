// Package sweep runs replays: every policy at every load with every seed, on
// all cores, and makes one report of them.
//
//	Options ──► capacity of the cell ──► runs: policy × load × seed ──► report.Report
//	                                     └ each with its own source of requests and its own policy
//
// What a run finds depends on its policy, load and seed alone; the order in
// which runs end changes nothing. Tune searches the parameters of one policy
// on one window and reports on another.
package sweep
