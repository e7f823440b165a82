package handoff

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/blake3"

	"meridian/internal/fields"
	"meridian/kv"
)

// Content is what a cache is of.
type Content struct {
	Scope  kv.Scope
	Tokens []uint32
}

// Fingerprint tells contents apart without telling what they are: it is hashed
// under a home's key, so that no other home can try prompts or salts against it.
// Its parts are apart so that a refusal can say what differs.
type Fingerprint struct {
	Model  kv.Hash // model, revision, adapter
	Prompt kv.Hash // tokens, and what they stand for: images, audio …
	Salt   kv.Hash
}

// The first byte of what is hashed says what it is. A ticket's seal begins with
// its magic, so none of these is one.
const (
	modelDomain byte = iota + 1
	promptDomain
	saltDomain
	homeDomain
)

// Fingerprint is the content's, under the key of the home that offers it.
func (c Content) Fingerprint(k Key) Fingerprint {
	return Fingerprint{
		Model:  k.hashTexts(modelDomain, c.Scope.Model, c.Scope.Revision, c.Scope.Adapter),
		Prompt: k.hashPrompt(c.Scope.Media, c.Tokens),
		Salt:   k.hashTexts(saltDomain, c.Scope.Salt),
	}
}

func (k Key) hashTexts(domain byte, texts ...string) kv.Hash {
	b := []byte{domain}
	for _, text := range texts {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(text)))
		b = append(b, text...)
	}
	return k.mac(b)
}

func (k Key) hashPrompt(media string, tokens []uint32) kv.Hash {
	h, err := blake3.NewKeyed(k[:])
	if err != nil {
		panic(err) // only a key of another length is refused
	}
	b := make([]byte, 0, 4096)
	b = append(b, promptDomain)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(media)))
	b = append(b, media...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tokens)))
	for _, token := range tokens {
		if b = binary.LittleEndian.AppendUint32(b, token); len(b) >= 4092 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return kv.Hash(h.Sum(nil))
}

// Check compares what a ticket is of with what its bearer asks for.
func (f Fingerprint) Check(own Fingerprint) error {
	switch {
	case f.Model != own.Model:
		return fmt.Errorf("%w than the request", ErrOtherModel)
	case f.Salt != own.Salt:
		return fmt.Errorf("%w than the request", ErrOtherSalt)
	case f.Prompt != own.Prompt:
		return fmt.Errorf("%w than the request", ErrOtherPrompt)
	}
	return nil
}

func (f *Fingerprint) each(c fields.Codec) { c.Hash(&f.Model, &f.Prompt, &f.Salt) }
