package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// stage is one object of a tokenizer.json with a type: a normalizer, a
// pre-tokenizer, a post-processor or a decoder, with the fields any may have.
type stage struct {
	Type string `json:"type"`

	Normalizers   []stage `json:"normalizers"`
	Pretokenizers []stage `json:"pretokenizers"`
	Processors    []stage `json:"processors"`
	Decoders      []stage `json:"decoders"`

	Pattern          *filePattern `json:"pattern"`
	Behavior         string       `json:"behavior"`
	Invert           bool         `json:"invert"`
	AddPrefixSpace   *bool        `json:"add_prefix_space"`
	UseRegex         *bool        `json:"use_regex"`
	IndividualDigits bool         `json:"individual_digits"`
	Replacement      string       `json:"replacement"`
	PrependScheme    string       `json:"prepend_scheme"`
	Split            *bool        `json:"split"`
	Prepend          string       `json:"prepend"`
	Content          string       `json:"content"`
	Start            int          `json:"start"`

	Single        []map[string]json.RawMessage `json:"single"`
	SpecialTokens map[string]struct {
		IDs []uint32 `json:"ids"`
	} `json:"special_tokens"`
}

type filePattern struct {
	Regex  *string `json:"Regex"`
	String *string `json:"String"`
}

func (p *filePattern) compile() (pattern, error) {
	switch {
	case p != nil && p.Regex != nil:
		return newPattern(*p.Regex)
	case p != nil && p.String != nil && *p.String != "":
		expression, err := regexp.Compile(regexp.QuoteMeta(*p.String))
		return pattern{expression: expression}, err
	}
	return pattern{}, errors.New("a pattern is neither a Regex nor a String")
}

type tokenizerFile struct {
	AddedTokens []struct {
		ID         uint32 `json:"id"`
		Content    string `json:"content"`
		Special    bool   `json:"special"`
		Normalized bool   `json:"normalized"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		SingleWord bool   `json:"single_word"`
	} `json:"added_tokens"`
	Normalizer    *stage `json:"normalizer"`
	PreTokenizer  *stage `json:"pre_tokenizer"`
	PostProcessor *stage `json:"post_processor"`
	Decoder       *stage `json:"decoder"`
	Model         struct {
		Type         string            `json:"type"`
		Vocab        json.RawMessage   `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
		UnkToken     *string           `json:"unk_token"`
		FuseUnk      bool              `json:"fuse_unk"`
		ByteFallback bool              `json:"byte_fallback"`
		IgnoreMerges bool              `json:"ignore_merges"`
		Dropout      *float64          `json:"dropout"`
		Prefix       *string           `json:"continuing_subword_prefix"`
		Suffix       *string           `json:"end_of_word_suffix"`
	} `json:"model"`
}

// OpenTokenizer reads a tokenizer.json.
func OpenTokenizer(path string) (*Tokenizer, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	t, err := ParseTokenizer(data)
	if err != nil {
		return nil, fmt.Errorf("token: %s: %w", path, err)
	}
	return t, nil
}

// ParseTokenizer reads the text of a tokenizer.json.
func ParseTokenizer(data []byte) (*Tokenizer, error) {
	if nesting(data) > maxNesting {
		return nil, fmt.Errorf("not a tokenizer.json: it is nested deeper than %d", maxNesting)
	}
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	t := &Tokenizer{special: make(map[uint32]bool)}
	for _, read := range []func(*tokenizerFile) error{
		t.readModel,
		func(f *tokenizerFile) error { return t.readNormalizer(f.Normalizer) },
		func(f *tokenizerFile) error { return t.readPreTokenizer(f.PreTokenizer) },
		func(f *tokenizerFile) error { return t.readPostProcessor(f.PostProcessor) },
		t.readDecoder,
		t.readAdded,
	} {
		if err := read(&f); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Tokenizer) readModel(f *tokenizerFile) error {
	m := &f.Model
	switch {
	case m.Type != "BPE" && !(m.Type == "" && m.Merges != nil):
		return fmt.Errorf("%w: a model of type %q: only BPE is", ErrUnsupported, m.Type)
	case m.Prefix != nil && *m.Prefix != "" || m.Suffix != nil && *m.Suffix != "":
		return fmt.Errorf("%w: continuing_subword_prefix and end_of_word_suffix", ErrUnsupported)
	}
	vocabulary, err := parseVocab(m.Vocab)
	if err != nil {
		return err
	}
	b := &t.merges
	b.ids = make(map[string]uint32, len(vocabulary))
	for text, id := range vocabulary {
		if id > maxID {
			return fmt.Errorf("token %q has id %d; %d is the limit", text, id, maxID)
		}
		b.ids[text] = uint32(id)
	}
	b.whole, b.fuse = m.IgnoreMerges, m.FuseUnk
	b.merges = make(map[pair]merge, len(m.Merges))
	for rank, raw := range m.Merges {
		left, right, err := parseMerge(raw)
		if err == nil {
			err = b.addMerge(rank, left, right)
		}
		if err != nil {
			return fmt.Errorf("merge %d: %w", rank, err)
		}
	}
	if m.UnkToken != nil {
		if id, found := b.ids[*m.UnkToken]; found {
			b.unknown = &id
		}
	}
	b.prepare()
	if m.ByteFallback {
		return b.readByteTokens()
	}
	return nil
}

// maxID bounds what a file can make us allocate.
const maxID = 1 << 20

// parseMerge reads "a b" and ["a", "b"].
func parseMerge(raw json.RawMessage) (left, right string, err error) {
	if bytes.HasPrefix(raw, []byte("[")) {
		var both []string
		if err := json.Unmarshal(raw, &both); err != nil || len(both) != 2 {
			return "", "", fmt.Errorf("%s is not a pair", raw)
		}
		return both[0], both[1], nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", "", err
	}
	left, right, found := strings.Cut(text, " ")
	if !found {
		return "", "", fmt.Errorf("%q is not two tokens", text)
	}
	return left, right, nil
}

func (b *bpe) readByteTokens() error {
	b.byteTokens = new([256]uint32)
	for c := range b.byteTokens {
		id, found := b.ids[fmt.Sprintf("<0x%02X>", c)]
		if !found {
			return fmt.Errorf("byte_fallback is set, and <0x%02X> is not in the vocabulary", c)
		}
		b.byteTokens[c] = id
	}
	return nil
}

func (t *Tokenizer) readNormalizer(s *stage) error {
	if s == nil {
		return nil
	}
	form, isForm := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}[s.Type]
	switch {
	case isForm:
		t.normalize = append(t.normalize, form.String)
	case s.Type == "Sequence":
		for i := range s.Normalizers {
			if err := t.readNormalizer(&s.Normalizers[i]); err != nil {
				return err
			}
		}
	case s.Type == "Prepend":
		t.normalize = append(t.normalize, func(text string) string { return s.Prepend + text })
	case s.Type == "Replace" && s.Pattern != nil && s.Pattern.String != nil:
		from, to := *s.Pattern.String, s.Content
		t.normalize = append(t.normalize, func(text string) string { return strings.ReplaceAll(text, from, to) })
	case s.Type == "Lowercase":
		t.normalize = append(t.normalize, strings.ToLower)
	default:
		return fmt.Errorf("%w: a normalizer of type %q", ErrUnsupported, s.Type)
	}
	return nil
}

func (t *Tokenizer) readPreTokenizer(s *stage) error {
	if s == nil {
		return nil
	}
	switch s.Type {
	case "Sequence":
		for i := range s.Pretokenizers {
			if err := t.readPreTokenizer(&s.Pretokenizers[i]); err != nil {
				return err
			}
		}
	case "ByteLevel":
		step := byteLevelSplit{spaceBefore: s.AddPrefixSpace != nil && *s.AddPrefixSpace}
		if s.UseRegex == nil || *s.UseRegex {
			words, err := newPattern(gpt2Words)
			if err != nil {
				return err
			}
			step.words = &words
		}
		t.split = append(t.split, step)
	case "Split":
		p, err := s.Pattern.compile()
		if err != nil {
			return err
		}
		if !slices.Contains(behaviors, s.Behavior) {
			return fmt.Errorf("%w: a Split that is %q", ErrUnsupported, s.Behavior)
		}
		t.split = append(t.split, patternSplit{pattern: p, behavior: s.Behavior, invert: s.Invert})
	case "Digits":
		behavior := "Contiguous"
		if s.IndividualDigits {
			behavior = "Isolated"
		}
		t.split = append(t.split, patternSplit{pattern: pattern{expression: digit}, behavior: behavior})
	case "Metaspace":
		t.split = append(t.split, s.metaspace())
	default:
		return fmt.Errorf("%w: a pre-tokenizer of type %q", ErrUnsupported, s.Type)
	}
	return nil
}

var digit = regexp.MustCompile(`\p{N}`)

func (s *stage) metaspace() metaspaceSplit {
	step := metaspaceSplit{replacement: s.Replacement, prepend: s.PrependScheme, cut: s.Split == nil || *s.Split}
	if step.replacement == "" {
		step.replacement = "▁"
	}
	if step.prepend == "" {
		step.prepend = "always"
		if s.AddPrefixSpace != nil && !*s.AddPrefixSpace {
			step.prepend = "never"
		}
	}
	return step
}

func (t *Tokenizer) readPostProcessor(s *stage) error {
	if s == nil {
		return nil
	}
	switch s.Type {
	case "ByteLevel": // concerns offsets only
	case "Sequence":
		for i := range s.Processors {
			if err := t.readPostProcessor(&s.Processors[i]); err != nil {
				return err
			}
		}
	case "TemplateProcessing":
		after := false
		for _, piece := range s.Single {
			var special struct {
				ID string `json:"id"`
			}
			if raw, isSpecial := piece["SpecialToken"]; !isSpecial {
				after = true
				continue
			} else if err := json.Unmarshal(raw, &special); err != nil {
				return fmt.Errorf("post_processor: %w", err)
			}
			if after {
				t.last = append(t.last, s.SpecialTokens[special.ID].IDs...)
			} else {
				t.first = append(t.first, s.SpecialTokens[special.ID].IDs...)
			}
		}
	default:
		return fmt.Errorf("%w: a post-processor of type %q", ErrUnsupported, s.Type)
	}
	return nil
}
