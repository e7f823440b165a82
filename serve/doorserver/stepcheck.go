package doorserver

import (
	"math"
	"strings"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// checkSteps says what is wrong with what an engine says of itself. A governor makes
// tables of these sizes.
func checkSteps(about *doorpb.Steps) *door.Problem {
	for _, is := range []struct {
		what   string
		number uint32
		most   uint32
	}{
		{"blocks", about.GetBlocks(), door.MaxGovernedBlocks},
		{"block_tokens", about.GetBlockTokens(), door.MaxGovernedTokens},
		{"max_running", about.GetMaxRunning(), door.MaxStepSequences},
		{"step_tokens", about.GetStepTokens(), door.MaxGovernedTokens},
	} {
		if is.number > is.most {
			return problem(door.CodeTerms, "%s is %d, at most %d", is.what, is.number, is.most)
		}
	}
	if about.GetBlockBytes() > door.MaxGovernedBlockBytes {
		return problem(door.CodeTerms, "block_bytes is %d, at most %d", about.GetBlockBytes(), uint64(door.MaxGovernedBlockBytes))
	}
	return nil
}

// checkStep says what is wrong with the shape of a Step, before anything is decided by it.
// Texts that are too long are cut. What cannot be an entropy is mended, too: below zero an
// engine rounds, and what is infinite was not measured.
func checkStep(m *doorpb.Step, measures bool) *door.Problem {
	n := len(m.GetSequences())
	if n > door.MaxStepSequences {
		return problem(door.CodeBusy, "a step of %d sequences, at most %d", n, door.MaxStepSequences)
	}
	for _, list := range []struct {
		name   string
		length int
	}{
		{"begun", len(m.GetBegun())},
		{"forked", len(m.GetForked())},
		{"finished", len(m.GetFinished())},
		{"stopped", len(m.GetStopped())},
		{"copied", len(m.GetCopied())},
		{"recalled", len(m.GetRecalled())},
		{"forced", len(m.GetForced())},
	} {
		if list.length > door.MaxStepSequences {
			return problem(door.CodeBusy, "a step in which %d are %s, at most %d", list.length, list.name, door.MaxStepSequences)
		}
	}
	if n := len(m.GetEvicted()); n > door.MaxGovernedBlocks {
		return problem(door.CodeBusy, "a step in which %d blocks are evicted, at most %d", n, door.MaxGovernedBlocks)
	}
	for _, column := range []struct {
		name   string
		length int
	}{
		{"computed", len(m.GetComputed())},
		{"counts", len(m.GetCounts())},
		{"places", len(m.GetPlaces())},
		{"block_counts", len(m.GetBlockCounts())},
	} {
		if column.length != 0 && column.length != n {
			return problem(door.CodeMalformed, "the column %s has %d entries, there are %d sequences", column.name, column.length, n)
		}
	}
	if len(m.GetForked()) != len(m.GetForkNats()) {
		return problem(door.CodeMalformed, "%d forks and %d entropies of forks", len(m.GetForked()), len(m.GetForkNats()))
	}
	if len(m.GetForced()) != len(m.GetForcedFor()) {
		return problem(door.CodeMalformed, "%d thoughts are ended, for %d reasons", len(m.GetForced()), len(m.GetForcedFor()))
	}
	if blocks := sum(m.GetBlockCounts()); blocks != uint64(len(m.GetBlocks())) {
		return problem(door.CodeMalformed, "block_counts sum to %d, and there are %d blocks", blocks, len(m.GetBlocks()))
	}
	if p := checkTokens(m, measures); p != nil {
		return p
	}
	for _, b := range m.GetBegun() {
		if len(b.GetTail()) > door.MaxTailTokens || len(b.GetGenerated()) > door.MaxGeneratedTokens {
			return problem(door.CodeBusy, "sequence %d begins with a tail of %d tokens and %d generated ones, at most %d and %d",
				b.GetSequence(), len(b.GetTail()), len(b.GetGenerated()), door.MaxTailTokens, door.MaxGeneratedTokens)
		}
		b.Id, b.Tenant = firstBytes(b.GetId(), door.MaxSequenceIDBytes), firstBytes(b.GetTenant(), door.MaxTenantBytes)
	}
	mend(m.GetEntropies())
	mend(m.GetForkNats())
	return nil
}

// checkTokens is for what tells a scheduler's Step from one of a process that measures.
func checkTokens(m *doorpb.Step, measures bool) *door.Problem {
	tokens, entropies, counted := len(m.GetTokens()), len(m.GetEntropies()), sum(m.GetCounts())
	if measures {
		others := len(m.GetBegun()) + len(m.GetComputed()) + len(m.GetBlockCounts()) + len(m.GetEvicted()) + len(m.GetFinished()) +
			len(m.GetStopped()) + len(m.GetCopied()) + len(m.GetRecalled())
		switch {
		case tokens > 0 || others > 0:
			return problem(door.CodeMalformed, "a process that measures tells of entropies alone; the scheduler tells of the rest")
		case len(m.GetPlaces()) != len(m.GetSequences()):
			return problem(door.CodeMalformed, "the column places has %d entries, there are %d sequences", len(m.GetPlaces()), len(m.GetSequences()))
		case counted != uint64(entropies):
			return problem(door.CodeMalformed, "counts sum to %d, and there are %d entropies", counted, entropies)
		}
		return nil
	}
	switch {
	case len(m.GetForced()) > 0:
		return problem(door.CodeMalformed, "thoughts that are ended are told by processes that measure; a scheduler's are decided")
	case len(m.GetPlaces()) > 0:
		return problem(door.CodeMalformed, "places are for processes that measure; a scheduler's entropies are those of its tokens")
	case counted != uint64(tokens):
		return problem(door.CodeMalformed, "counts sum to %d, and there are %d tokens", counted, tokens)
	case entropies != 0 && entropies != tokens:
		return problem(door.CodeMalformed, "%d entropies of %d tokens", entropies, tokens)
	}
	return nil
}

func sum(column []uint32) (all uint64) {
	for _, n := range column {
		all += uint64(n)
	}
	return all
}

// firstBytes cuts a text, between two characters.
func firstBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

func mend(entropies []float32) {
	for i, nats := range entropies {
		switch {
		case nats < 0:
			entropies[i] = 0
		case math.IsInf(float64(nats), 0):
			entropies[i] = float32(math.NaN())
		}
	}
}
