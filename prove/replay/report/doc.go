// Package report turns the runs of a replay into something people read and
// programs compare.
//
//	runs: policy × load × seed          one Run each: figures, quantiles, a timeline
//	        │ Build                     means over seeds, Student's t intervals
//	        ▼
//	     Report ──► report.json         versioned; what Read accepts and Compare compares
//	        ├─────► report.md
//	        └─────► report.html         one file, pictures inside, no scripts
//
// Every policy is given the same requests under the same seed, so that
// differences are paired seed by seed. A difference is called a WIN or a LOSS
// only where the t interval over seeds excludes zero. Nothing here
// reads a clock, and nothing depends on the order of the runs: the same runs
// make the same bytes.
package report
