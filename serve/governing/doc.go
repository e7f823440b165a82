// Package governing has the governors of engines that serve: one for each engine that
// tells of its steps. It turns messages of the engine door into governor.Facts and a
// governor.Decision into a message, and keeps what people ask for.
//
//	scheduler's Step ─► check, bound ─► governor.Facts ─► Governor ─► Decision ─► message
//	                                        ▲
//	measuring Steps ──► entropies by (sequence, place), and thoughts that are ended there
//
// An engine has one connection from its scheduler, and any number that only measure:
// where the logits are in other processes, their entropies come by themselves, before
// the tokens that they are of or after. A commit takes those that have come.
//
// What engines write is hostile. The door checks the shape of each message, and bounds
// it; here facts that contradict each other are counted and left out, and what adds up
// from message to message is bounded: sequences, tenants, entropies that wait. The clock
// is an argument.
package governing
