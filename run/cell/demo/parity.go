package demo

import (
	"fmt"
	"slices"

	"meridian/run/cell/openaiclient"
)

// Mismatch is the first place where two answers to one prompt differ.
type Mismatch struct {
	// Prompt counts from 1.
	Prompt int    `json:"prompt"`
	Kind   string `json:"kind"`
	// RequestID is for `meridian explain`.
	RequestID string `json:"request_id"`
	// What differs: "prompt", "tokens", "text", "thought" or "finish".
	What string `json:"what"`
	// At is the position of the first token that differs.
	At int `json:"at"`
	// Cell and Alone are what each has there.
	Cell  string `json:"cell"`
	Alone string `json:"alone"`
	// Differing is how many of the Prompts have a difference.
	Differing int `json:"differing"`
	Prompts   int `json:"prompts"`
}

func (m *Mismatch) String() string {
	return fmt.Sprintf("in %d of %d prompts; first in prompt %d (%s), %s at %d: the cell has %s, an engine alone %s; `meridian explain %s` tells more",
		m.Differing, m.Prompts, m.Prompt, m.Kind, m.What, m.At, m.Cell, m.Alone, m.RequestID)
}

// compare counts the tokens that were compared, and tells the first difference.
func compare(prompts []prompt, cell, alone []*openaiclient.Answer) (tokens int, first *Mismatch, err error) {
	differing := 0
	for i := range prompts {
		if len(cell[i].Tokens) == 0 || len(alone[i].Tokens) == 0 {
			return 0, nil, fmt.Errorf("demo: prompt %d (%s): there are %d and %d token ids; without them nothing can be compared",
				i+1, prompts[i].kind, len(cell[i].Tokens), len(alone[i].Tokens))
		}
		tokens += len(alone[i].Tokens)
		m := difference(cell[i], alone[i])
		if m == nil {
			continue
		}
		differing++
		if first == nil {
			m.Prompt, m.Kind, m.RequestID = i+1, prompts[i].kind, cell[i].RequestID
			first = m
		}
	}
	if first != nil {
		first.Differing, first.Prompts = differing, len(prompts)
	}
	return tokens, first, nil
}

func difference(cell, alone *openaiclient.Answer) *Mismatch {
	for _, list := range []struct {
		what        string
		cell, alone []uint32
	}{{"prompt", cell.PromptTokens, alone.PromptTokens}, {"tokens", cell.Tokens, alone.Tokens}} {
		if slices.Equal(list.cell, list.alone) {
			continue
		}
		at := 0
		for at < min(len(list.cell), len(list.alone)) && list.cell[at] == list.alone[at] {
			at++
		}
		return &Mismatch{What: list.what, At: at, Cell: tokenAt(list.cell, at), Alone: tokenAt(list.alone, at)}
	}
	for _, text := range []struct{ what, cell, alone string }{
		{"thought", cell.Thought, alone.Thought}, {"text", cell.Text, alone.Text}, {"finish", cell.Finish, alone.Finish},
	} {
		if text.cell != text.alone {
			return &Mismatch{What: text.what, Cell: fmt.Sprintf("%q", text.cell), Alone: fmt.Sprintf("%q", text.alone)}
		}
	}
	return nil
}

func tokenAt(tokens []uint32, at int) string {
	if at >= len(tokens) {
		return "no more"
	}
	return fmt.Sprintf("token %d", tokens[at])
}
