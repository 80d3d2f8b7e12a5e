"""Small tokenizers in the shapes in which those of published models come, made here, one folder each."""

import functools
import json
import tempfile
from pathlib import Path

from difficult_text import SENTENCES
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from glassformer.data.folder import QWEN

MORE = [
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다.",
    "All human beings are born free and equal in dignity and rights.",
    "They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.",
    "Les êtres humains naissent libres et égaux, où çà.",
]
CORPUS = [*SENTENCES, *MORE] * 10
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def special(*texts, **flags):
    return [AddedToken(text, special=True, normalized=False, **flags) for text in texts]


def around(library, before, behind):
    ids = [(one, library.token_to_id(one)) for one in {*before, *behind}]
    library.post_processor = processors.TemplateProcessing(single=[*before, "$A", *behind], special_tokens=ids)


def byte_level(marks, pre=None, normalizer=None, **flags):
    library = Tokenizer(models.BPE(**flags))
    library.normalizer = normalizer
    library.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special(*marks), initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def split(pattern):
    cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(False, use_regex=False)])


def gpt2():
    library = byte_level(["<|endoftext|>"])
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    return library, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def neox():
    library = byte_level(["<|endoftext|>", "<|padding|>"], normalizer=normalizers.NFC())
    library.add_tokens([AddedToken(" " * n, normalized=True) for n in (8, 4, 2)])
    library.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    return library, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def llama3():
    library = byte_level(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], split(LLAMA3), ignore_merges=True)
    around(library, ["<|begin_of_text|>"], [])
    return library, {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}


def qwen2():
    library = byte_level([], split(QWEN), normalizers.NFC())
    library.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    library.add_tokens([AddedToken("<think>", normalized=False)])
    return library, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": TEMPLATE}


def smollm2():
    digits = pre_tokenizers.Digits(individual_digits=True)
    pre = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    library = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], pre)
    return library, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}


def roberta():
    library = byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    library.add_special_tokens(special("<mask>", lstrip=True))
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return library, {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>", "eos_token": "</s>"}


def bart():
    library = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], pre_tokenizers.ByteLevel(add_prefix_space=True))
    pairs = [("</s>", 2), ("<s>", 0)]
    library.post_processor = processors.RobertaProcessing(*pairs, trim_offsets=False, add_prefix_space=True)
    return library, {"bos_token": "<s>", "eos_token": "</s>"}


def modernbert():
    library = byte_level(["[CLS]", "[SEP]", "[MASK]", "[PAD]"], normalizer=normalizers.NFC())
    library.add_tokens([AddedToken(" " * n, normalized=False) for n in (4, 3, 2)])
    around(library, ["[CLS]"], ["[SEP]"])
    return library, {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


def whisper():
    marks = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|ko|>", "<|transcribe|>", "<|notimestamps|>"]
    library = byte_level(marks)
    around(library, ["<|startoftranscript|>", "<|notimestamps|>"], ["<|endoftext|>"])
    return library, {"eos_token": "<|endoftext|>"}


def bert(lowercase=True):
    library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##")
    marks = special("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    library.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=marks, show_progress=False)
    )
    around(library, ["[CLS]"], ["[SEP]"])
    return library, {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "unk_token": "[UNK]"}


def unigram(marks, before, behind, normalizer, scheme="always", extra=()):
    library = Tokenizer(models.Unigram())
    library.normalizer = normalizer
    words = [pre_tokenizers.WhitespaceSplit()] if scheme == "always" else []
    library.pre_tokenizer = pre_tokenizers.Sequence([*words, pre_tokenizers.Metaspace("▁", prepend_scheme=scheme)])
    library.decoder = decoders.Metaspace("▁", prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=special(*marks), unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    library.add_special_tokens(special(*extra))
    around(library, before, behind)
    return library, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<s>"}


def xlm_roberta():
    squeezed = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    return unigram(["<s>", "<pad>", "</s>", "<unk>"], ["<s>"], ["</s>"], squeezed, extra=["<mask>"])


def t5():
    marks, extra = ["<pad>", "</s>", "<unk>"], [f"<extra_id_{i}>" for i in range(9, -1, -1)]
    library, names = unigram(marks, [], ["</s>"], normalizers.NFKC(), extra=extra)
    return library, {"eos_token": names["eos_token"], "unk_token": "<unk>", "pad_token": "<pad>"}


def mbart():
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    return unigram(marks, [], ["</s>", "en_XX"], normalizers.NFKC(), extra=["en_XX", "ko_KR", "<mask>"])


def pairs(scheme, marks=("<unk>", "<s>", "</s>"), bytes_=True):
    """Pairs of characters merged, bytes for the rest, and how ▁ comes into a text: normalizer, first or never."""
    library = Tokenizer(models.BPE(unk_token=marks[0], byte_fallback=True, fuse_unk=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True)
    known = [*marks, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=560, special_tokens=special(*known), limit_alphabet=60, show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    data = json.loads(library.to_str())
    data["added_tokens"] = data["added_tokens"][: len(marks)]  # the pieces of bytes are no special tokens
    library = Tokenizer.from_str(json.dumps(data))
    drop = [] if scheme == "never" else [decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *drop])
    library.pre_tokenizer = None
    if scheme == "normalizer":
        library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif scheme == "never":
        library.normalizer = normalizers.Replace(" ", "▁")
    else:
        library.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    around(library, [marks[1]], [])
    return library, {"unk_token": marks[0], "bos_token": marks[1], "eos_token": marks[2]}


SHAPES = {
    "gpt2": gpt2, "neox": neox, "llama3": llama3, "qwen2": qwen2, "smollm2": smollm2, "roberta": roberta, "bart": bart,
    "modernbert": modernbert, "whisper": whisper, "bert": bert, "bert-cased": functools.partial(bert, False),
    "xlm-roberta": xlm_roberta, "t5": t5, "mbart": mbart, "llama2": functools.partial(pairs, "normalizer"),
    "mistral": functools.partial(pairs, "first"),
    "gemma": functools.partial(pairs, "never", ("<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")),
}  # fmt: skip
_KEPT = tempfile.TemporaryDirectory()


@functools.cache
def folder(shape: str) -> Path:
    """A folder with the tokenizer.json and tokenizer_config.json of that shape."""
    library, config = SHAPES[shape]()
    made = Path(_KEPT.name) / shape
    made.mkdir()
    library.save(str(made / "tokenizer.json"))
    (made / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}), encoding="utf-8"
    )
    return made
