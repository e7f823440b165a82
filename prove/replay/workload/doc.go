// Package workload says which requests arrive, when, and how long they are.
// A workload is a sequence of requests in the order of their arrival, made
// from a seed or read from a file one request at a time, so that memory does
// not grow with its length. The same name, options and seed give the same
// requests to every caller: policies are compared on equal requests.
//
//	name, Options ──► Open ──► Source ──► Next, Next, … ──► Err
//	                    └────► Info: what it is made from, its rate and means
//
// docs/workloads.md describes every workload and the JSONL schema.
package workload
