package token

// Tokens of the built-in tokenizer beside the 256 bytes, in the order of their
// ids. They are what the built-in models of the reference engine know.
const (
	BOS        uint32 = 256 + iota // <|bos|>
	EOS                            // <|eos|>
	ImStart                        // <|im_start|>
	ImEnd                          // <|im_end|>
	ThinkStart                     // <think>
	ThinkEnd                       // </think>
)

// Bytes is the built-in tokenizer: every byte is a token, and there are six
// more for the structure of a conversation. A whole text begins with <|bos|>.
func Bytes() *Tokenizer { return builtin }

var builtin = func() *Tokenizer {
	t := &Tokenizer{special: make(map[uint32]bool), split: []splitter{byteLevelSplit{}}, first: []uint32{BOS}}
	t.merges.ids = make(map[string]uint32, 256)
	for c := range 256 {
		t.merges.ids[string(byteRunes[c])] = uint32(c)
		t.texts = append(t.texts, []byte{byte(c)})
	}
	added := []addedToken{
		{id: BOS, text: "<|bos|>", special: true},
		{id: EOS, text: "<|eos|>", special: true},
		{id: ImStart, text: "<|im_start|>", special: true},
		{id: ImEnd, text: "<|im_end|>", special: true},
		{id: ThinkStart, text: "<think>"},
		{id: ThinkEnd, text: "</think>"},
	}
	for _, a := range added {
		t.texts = append(t.texts, []byte(a.text))
		t.special[a.id] = a.special
	}
	t.raw = newScanner(added)
	t.merges.prepare()
	return t
}()
