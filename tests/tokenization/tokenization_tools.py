"""Texts and tokenizers that the tests of this folder share."""

import tokenizers
from hypothesis import settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

CORPUS = [
    "time flies like an arrow; fruit flies like a banana.\n",
    "How many people live in France? About 68 million.\n\tAnd how many are in Germany?\r\n",
    "遥遥领先，遥遥领先。法国有多少人口？那德国呢？\n",
    "It's what they've said: we'll see, I'm sure you're right, he'd know, don't.\n",
    "Émile café naïve e\u0301tude Ελλάδα ΟΔΟΣ Москва नमस्ते 안녕하세요 العربية\n",
    "def f(x):\n    return x ** 2 + 3.14159   # a  comment\n\n\n",
    "👩‍👩‍👧 🙂🙂 🇫🇷 <b>bold</b> &amp; #tag @name 100% $5\n",
] * 3
SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "</s>")
VOCAB_SIZE = 500

# Characters that this Python's Unicode does not know are left out: `regex` and `tokenizers`, each
# with tables of its own, may take them for different things.
ANY_CHARACTER = st.characters(exclude_categories=("Cs", "Cn"))
SPACES = (" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2028", "\x85")
WORDS = ("the", " the", "time", " flies", "It's", "'S", "'ll", " 't", "don't", "123", " 45", "³")
LETTERS = ("遥遥领先", "法国", "é", "e\u0301", "\u0301", "ß", "İ", "ſ", "ΟΔΟΣ", "नमस्ते", "안녕", "ﬁ")
FAMILY = "\U0001f469\u200d\U0001f467"  # two people joined into one sign
SIGNS = ("，", FAMILY, "🇫🇷", "\ufe0f", "\u200d", "\ufffd", "\ufeff", "\ue000", "\x00")
CONTROLS = ("</s>", "<|im_end|>", "<|im_", "end|>", "[CLS]", "[MASK]", "[UNK]", "##ing", "Ġ", "Ċ")
STUMBLING_BLOCKS = (*SPACES, *WORDS, *LETTERS, *SIGNS, *CONTROLS, "a" * 101)
TEXT = st.lists(st.sampled_from(STUMBLING_BLOCKS) | st.text(ANY_CHARACTER, max_size=8)).map("".join)

MANY = settings(max_examples=100, deadline=None, derandomize=True)
FEW = settings(max_examples=40, deadline=None, derandomize=True)


def train_with_tokenizers(texts, vocab_size, special_tokens=()):
    """The same kind of tokenizer, trained by the `tokenizers` library."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
