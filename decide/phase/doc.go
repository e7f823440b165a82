// Package phase follows the token stream of a sequence and says in which phase
// it is: in prefill, in its thought, in its answer, or over.
//
//	            first token, after white space, that begins no thought
//	   ┌──────────────────────────────────────────────┐
//	   │                                              ▼
//	Prefill ── start marker, or a thought that ──► Think ── end marker ──► Output ── End ──► Complete
//	           the prompt or the model's habit      │      ExitThink                 Complete
//	           has opened: EnterThink               └────────── End ──────────────────────►
//
// The arrow above leads from Prefill past Think to Output. A phase only moves
// forward (kv.Phase): a marker that comes after the thought is text.
//
// Three kinds of models are told apart when a Model is made:
//
//   - by ids: markers are sequences of token ids, one or several, which may
//     straddle steps and speculative batches (Qwen3, DeepSeek-R1, GLM);
//   - by prose: markers are texts that a tokenizer may spell in several ways, so
//     the bytes of the tokens are read (Granite);
//   - by channel: every message names the channel it is in (gpt-oss). The thought
//     ends where a message opens in another channel, so several thoughts in a row
//     are one, and the frames between them belong to none.
//
// A Machine is one sequence, a value of fixed size; a Map is the sequences of one
// engine. Only committed tokens are fed: a draft that the engine rejected never
// was. However the tokens are cut into steps, the same events come, at the same
// positions. A token costs O(1) and allocates nothing; of a prose model that is
// its bytes, of which the tokenizer bounds the number.
package phase
