"""Trains four small tokenizers with Hugging Face `tokenizers` and writes what
they make of tricky texts, so that the Go reader can be held to it.

    pip install tokenizers==0.23.3 && python make_goldens.py

The trained files and the goldens are committed; tests need no Python.
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent

CORPUS = [
    "The cache of a request moves from the machine that computed it to the machine that goes on with it.",
    "It's what we've said: they'll read it, I'd write it, you're done, and I'm not. IT'S WHAT WE'VE SAID.",
    "def step(batch):\n    for request in batch:\n        if request.done:\n            continue\n\treturn None\n\n\n",
    "0 1 22 333 4444 55555 2024-11-15 3.14159 1,000,000 0xDEADBEEF",
    "Größe, Übermut, façade, naïve, coöperate, résumé, Ελλάδα, Москва, 東京都, 日本語のテキスト, 한국어, עברית, العربية",
    "the tokens the tokens the tokens of the prompt, the prompt, the prompt and the answer, the answer",
    "🙂 🙃 👩‍💻 🇪🇺 ❤️ ✅ emoji come in several code points",
]

TEXTS = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "a  b",
    "a   b    c\t\td\n\n e \r\n f\r",
    "   leading and trailing   ",
    "\n\n\n",
    " \n \n ",
    "\t\tx",
    "x\u00a0y\u2003\u2003z\u3000w\u0085v\u2028u",
    "It's what we've said; IT'S, WE'VE, I'D, you'Re, 'twas 'quoted' can't've",
    "1 12 123 1234 12345 1234567890 3.14 1e-9 ½ ² ٣٤ Ⅷ",
    "naïve façade coöperate Ångström cafe\u0301 \u1e9b\u0323",
    "東京都に住む日本語のテキスト。漢字、かな、カナ",
    "한국어 텍스트 и русский текст, ελληνικά, עברית, العربية",
    "🙂🙃 👩‍💻👨‍👩‍👧‍👦 🇪🇺 ❤️✅ x🙂y",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
    "<think>hm</think>\n\nyes",
    " <|im_end|>  <|im_end|> x<|im_end|>y <|im_e nd|> <|im_end| >",
    "<|im_start|><|im_start|>user",
    "a<special>b <special> c<mask> d <mask>e x wordy word words aword word",
    "for i in range(10):\n    print(i)\n\n\n    # done\n",
    "!!! ??? ... --- ,,, ;;; ((( ))) [[]] {{}} @#$%^&*~`|\\/<>",
    "http://example.com/a?b=c&d=e#f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the the thethethe tokens tokenstokens",
    "\u0000\u0001\u007f\u200b\ufeff\ufffd",
    "▁already ▁▁marked",
    "mixed 東京 and 12 and 🙂 and    spaces\n\tand tabs",
]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

ADDED = [
    AddedToken("<|im_start|>", special=True, normalized=False),
    AddedToken("<|im_end|>", special=True, normalized=False),
    AddedToken("<think>", special=False, normalized=False),
    AddedToken("</think>", special=False, normalized=False),
    AddedToken("<mask>", special=True, normalized=False, lstrip=True),
    AddedToken("<special>", special=True, normalized=False, rstrip=True),
    AddedToken("word", special=False, normalized=True, single_word=True),
]


def add(tokenizer: Tokenizer) -> None:
    tokenizer.add_special_tokens([t for t in ADDED if t.special])
    tokenizer.add_tokens([t for t in ADDED if not t.special])


def byte_level(pre_tokenizer, normalizer=None, ignore_merges=False, bos=None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=620,
        min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[bos] if bos else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 2, trainer)
    add(tokenizer)
    if bos:
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]),
            ]
        )
    return tokenizer


def split(pattern: str):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def llama2() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=560, min_frequency=1, special_tokens=special, max_token_length=12, limit_alphabet=80, show_progress=False
    )
    tokenizer.train_from_iterator([word for text in CORPUS for word in text.split()], trainer)
    # What was needed to train is no text of its own: only <s> stays an added token.
    trained = json.loads(tokenizer.to_str())
    trained["added_tokens"] = [t for t in trained["added_tokens"] if t["content"] in ("<unk>", "<s>")]
    tokenizer = Tokenizer.from_str(json.dumps(trained))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def main() -> None:
    made = {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "llama3": byte_level(split(LLAMA3), ignore_merges=True, bos="<|begin_of_text|>"),
        "qwen": byte_level(split(QWEN), normalizer=normalizers.NFC()),
        "llama2": llama2(),
    }
    for name, tokenizer in made.items():
        document = json.loads(tokenizer.to_str())
        if name == "gpt2":  # older files write merges as texts
            document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
        path = HERE / f"{name}.json"
        path.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        reread = Tokenizer.from_file(str(path))
        lines = []
        for text in TEXTS:
            ids = reread.encode(text, add_special_tokens=False).ids
            whole = reread.encode(text).ids
            lines.append(
                json.dumps(
                    {
                        "text": text,
                        "ids": ids,
                        "whole": whole,
                        "decoded": reread.decode(ids, skip_special_tokens=False),
                    },
                    ensure_ascii=True,
                )
            )
        (HERE / f"{name}.golden.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {len(document['model']['vocab'])} tokens, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
