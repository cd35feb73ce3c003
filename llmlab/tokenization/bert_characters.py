"""What BERT's tokenizer takes for a control character, an accent, a punctuation mark, a Chinese
character.

It goes by the Unicode category of a character, in the tables of Unicode 8, which the `tokenizers`
library still uses here. Later versions of Unicode brought more accents and marks, and each Python
has tables of another version. The list below takes the newcomers out again, so that a text has the
same tokens everywhere.
"""

import re
import unicodedata

# Stretches of code points in which Unicode 8 knows no accent, punctuation mark or control
# character, while a later version (9 to 17) does.
_YOUNGER_THAN_UNICODE_8 = re.compile(
    "["
    "\u05c8-\u05c9\u061d\u07fd\u0890-\u08e2\u09fd-\u09fe\u0a76\u0afa-\u0aff\u0b53-\u0b55\u0c04-\u0c3c"
    "\u0c77\u0c84\u0d00\u0d3b-\u0d3c\u0d81\u0eba\u0ece\u180f-\u1886\u1abf-\u1af0\u1b4e-\u1b4f"
    "\u1b7d-\u1b7f\u1df6-\u1dfb\u2e43-\u2e63\ua82c\ua8c5\ua8ff\ua9bd\U00010d24-\U00010f89"
    "\U00011070-\U00011074\U000110c2-\U000110cd\U000111cf\U0001123e-\U00011241\U0001133b"
    "\U000113bb-\U0001145e\U00011660-\U0001166c\U000116b9\U0001182f-\U00011fff\U00012ff1-\U0001612f"
    "\U00016d6d-\U00016f4f\U00016fe2-\U00016fe4\U0001cf00-\U0001d128\U0001d25b-\U0001d25c"
    "\U0001e000-\U0001e6f5\U0001e944-\U0001e95f"
    "]"
)

# Characters that a later version of Unicode moved to another category.
_CATEGORY_IN_UNICODE_8 = {"\u166d": "Po", "\u1734": "Mn", "\U000111c9": "Po", "\U0001171e": "Mn"}

# BERT's own code begins the sixth range at 2B820, `tokenizers` at 2B920; these 256 are rare and in
# no BERT vocabulary.
_CHINESE = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def is_control(character: str) -> bool:
    """Whether BERT drops the character: controls, format and private characters, U+FFFD."""
    if character in "\t\n\r":
        return False
    return character == "\ufffd" or _category(character) in ("Cc", "Cf", "Co")


def is_accent(character: str) -> bool:
    """Whether it is a combining mark that takes no room of its own (category Mn)."""
    return _category(character) == "Mn"


def is_punctuation(character: str) -> bool:
    """Whether BERT cuts here: all ASCII signs, also those that Unicode calls symbols, such as $."""
    return character in _ASCII_PUNCTUATION or _category(character).startswith("P")


def is_chinese(character: str) -> bool:
    """Whether it is an ideograph, which BERT makes a word of its own; kana and hangul are not."""
    return _CHINESE.match(character) is not None


def _category(character: str) -> str:
    if _YOUNGER_THAN_UNICODE_8.match(character):
        return "Cn"  # not assigned
    return _CATEGORY_IN_UNICODE_8.get(character) or unicodedata.category(character)
