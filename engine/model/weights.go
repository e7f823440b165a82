package model

import (
	"fmt"
	"slices"

	"meridian/engine/model/kernel"
)

// Model is a configuration and its weights, which never change: any number of
// runners may share one.
type Model struct {
	config Config
	embed  matrix
	head   matrix // the embedding's memory, if tied
	norm   []float32
	layers []layer
}

// matrix maps vectors of columns elements to vectors of rows elements. Its rows
// are padded with zeros to whole lanes.
type matrix struct {
	kernel.Rows
	rows, columns int
}

// layer is one transformer layer. Every projection's row is what one output
// element needs, which is why ranks can own rows.
type layer struct {
	inputNorm, outputNorm []float32
	queryNorm, keyNorm    []float32 // nil without HeadNorms
	query, key, value     matrix
	output                matrix
	gate, up, down        matrix
}

func newMatrix(rows, columns int) matrix {
	stride := kernel.Padded(columns)
	return matrix{kernel.Rows{Data: make([]float32, rows*stride), Stride: stride}, rows, columns}
}

// source fills tensors by the names they have in Hugging Face's files.
type source interface {
	matrix(name string, rows, columns int) (matrix, error)
	vector(name string, n int) ([]float32, error)
}

// Names of tensors as Llama and Qwen3 checkpoints have them.
const (
	embedName = "model.embed_tokens.weight"
	normName  = "model.norm.weight"
	headName  = "lm_head.weight"
)

// assemble takes every tensor of a model from a source.
func assemble(c Config, from source) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	a := assembly{from: from}
	m := &Model{
		config: c,
		embed:  a.matrix(embedName, c.Vocab, c.Hidden),
		norm:   a.vector(normName, c.Hidden),
	}
	m.head = m.embed
	if !c.Tied {
		m.head = a.matrix(headName, c.Vocab, c.Hidden)
	}
	for i := 0; i < c.Layers && a.err == nil; i++ {
		m.layers = append(m.layers, a.layer(c, i))
	}
	if a.err != nil {
		return nil, a.err
	}
	return m, nil
}

// assembly keeps the first error.
type assembly struct {
	from source
	err  error
}

func (a *assembly) matrix(name string, rows, columns int) (m matrix) {
	if a.err == nil {
		m, a.err = a.from.matrix(name, rows, columns)
	}
	return m
}

func (a *assembly) vector(name string, n int) (v []float32) {
	if a.err == nil {
		v, a.err = a.from.vector(name, n)
	}
	return v
}

func (a *assembly) layer(c Config, i int) layer {
	width, kvWidth := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	name := func(part string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, part) }
	l := layer{
		inputNorm:  a.vector(name("input_layernorm"), c.Hidden),
		query:      a.matrix(name("self_attn.q_proj"), width, c.Hidden),
		key:        a.matrix(name("self_attn.k_proj"), kvWidth, c.Hidden),
		value:      a.matrix(name("self_attn.v_proj"), kvWidth, c.Hidden),
		output:     a.matrix(name("self_attn.o_proj"), c.Hidden, width),
		outputNorm: a.vector(name("post_attention_layernorm"), c.Hidden),
		gate:       a.matrix(name("mlp.gate_proj"), c.Intermediate, c.Hidden),
		up:         a.matrix(name("mlp.up_proj"), c.Intermediate, c.Hidden),
		down:       a.matrix(name("mlp.down_proj"), c.Hidden, c.Intermediate),
	}
	if c.HeadNorms {
		l.queryNorm = a.vector(name("self_attn.q_norm"), c.HeadDim)
		l.keyNorm = a.vector(name("self_attn.k_norm"), c.HeadDim)
	}
	return l
}

// Config returns the model's shape.
func (m *Model) Config() Config {
	c := m.config
	c.EOS, c.Suppressed = slices.Clone(c.EOS), slices.Clone(c.Suppressed)
	return c
}

// Suppressed lists the tokens that sampling must not choose.
func (m *Model) Suppressed() []uint32 { return slices.Clone(m.config.Suppressed) }

// EOS lists the tokens that end a text.
func (m *Model) EOS() []uint32 { return slices.Clone(m.config.EOS) }

// MaxContext is how many tokens a text may have, prompt and answer together.
func (m *Model) MaxContext() int { return m.config.Context }
