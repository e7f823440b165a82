// Package validation holds replay to a real engine. The reference engine is
// measured step by step under closed loops, a profile is fitted to that, and
// then the engine serves requests that arrive as they like, which the profile
// has not seen. Replay gets the same requests at the same moments, with that
// profile and the policy that the engine has, and what it predicts stands
// beside what was measured.
//
//	closed loops ──► steps ──► Fit ──► Profile ──┐
//	open load ──► engine ──► measured            ├──► Report
//	     └── the same requests ──► replay.Run ───┘──► predicted
package validation
