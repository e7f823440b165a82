package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"meridian/decide/phase"
	"meridian/engine/model"
	"meridian/engine/token"
	"meridian/kv"
)

// servedModel is what is served: a model, and the texts it understands.
type servedModel struct {
	model      *model.Model
	tokenizer  *token.Tokenizer
	template   token.ChatTemplate
	noTemplate error // why there is no chat, if there is none
	scope      kv.Scope
	// ends are the tokens after which nothing follows.
	ends       []uint32
	suppressed []uint32
	thinkStart marker
	thinkEnd   marker
	thoughts   *phase.Model
	newline    marker
}

// marker is a token that a tokenizer may not have.
type marker struct {
	id     uint32
	exists bool
}

// isBuiltin tells a built-in model's name from a directory's.
func isBuiltin(name string) bool { return name == "tiny" || name == "small" }

func openServedModel(name string, seed uint64) (*servedModel, error) {
	s := &servedModel{}
	var err error
	if isBuiltin(name) {
		if s.model, err = model.Builtin(name, seed); err != nil {
			return nil, err
		}
		s.tokenizer, s.template = token.Bytes(), token.ChatML()
		s.scope = kv.Scope{Model: name, Revision: fmt.Sprintf("built in, seed %d", seed)}
	} else if err = s.openDirectory(name); err != nil {
		return nil, err
	}
	s.ends = slices.Clone(s.model.EOS())
	if s.noTemplate == nil {
		if id, found := s.tokenizer.ID(s.template.End()); found && !slices.Contains(s.ends, id) {
			s.ends = append(s.ends, id)
		}
	}
	s.suppressed = s.model.Suppressed()
	return s, s.findMarkers()
}

// findMarkers looks in the tokenizer for what thoughts and lines end with.
func (s *servedModel) findMarkers() (err error) {
	s.thinkStart.id, s.thinkStart.exists = s.tokenizer.ID("<think>")
	s.thinkEnd.id, s.thinkEnd.exists = s.tokenizer.ID("</think>")
	if ids := s.tokenizer.Encode("\n"); len(ids) == 1 {
		s.newline = marker{ids[0], true}
	}
	s.thoughts, err = s.thoughtModel()
	return err
}

// Thoughts is how a model that engines bring along marks its thoughts, and what its tokens
// stand for, so that a governor knows it without a table of the configuration. It is nil
// for every other name.
func Thoughts(name string) (*phase.Model, func(id uint32) []byte) {
	s := &servedModel{tokenizer: token.Bytes()}
	if !isBuiltin(name) || s.findMarkers() != nil {
		return nil, nil
	}
	return s.thoughts, s.tokenizer.Text
}

func (s *servedModel) openDirectory(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		return fmt.Errorf("engine: %q is neither tiny nor small nor a directory with a model: %w", dir, err)
	}
	var err error
	if s.model, err = model.Load(dir); err != nil {
		return err
	}
	if s.tokenizer, err = token.OpenTokenizer(filepath.Join(dir, "tokenizer.json")); err != nil {
		return err
	}
	if s.template, s.noTemplate = token.OpenChatTemplate(dir); s.noTemplate != nil && !errors.Is(s.noTemplate, token.ErrUnsupported) {
		return s.noTemplate
	}
	revision, err := digest(dir)
	if err != nil {
		return err
	}
	s.scope = kv.Scope{Model: filepath.Base(filepath.Clean(dir)), Revision: revision}
	return nil
}

// digest is of a model's shape and weights: engines with different ones must
// not exchange caches.
func digest(dir string) (string, error) {
	weights, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return "", err
	}
	slices.Sort(weights)
	h := sha256.New()
	for _, path := range append([]string{filepath.Join(dir, "config.json")}, weights...) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, f)
		_ = f.Close() // it was only read
		if err != nil {
			return "", err
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
