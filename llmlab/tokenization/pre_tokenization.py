"""Pre-tokenization: text is cut into words first, and no token ever crosses a cut.

Without it, frequent neighbours of any kind would merge ("dog." and "dog!" as two tokens). GPT-2
cuts with one regular expression: runs of letters, of digits or of other signs, each with one space
before it, and runs of white space. Nothing is lost: the pieces joined are the text.
"""

from dataclasses import dataclass

import regex

# From GPT-2's code (Radford et al. 2019, `encoder.py`); ByteLevel of `tokenizers` uses the same.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class PreTokenizer:
    """Cuts text at the matches of one pattern after another.

    patterns: regular expressions in the syntax of the `regex` package. Every match of the first
        becomes a piece of its own, and so does the text between two matches; the next pattern cuts
        these further.

    What counts as a letter or a digit is what `regex` knows, whose Unicode is a recent one. The
    `tokenizers` library has an older one: the two may cut letters added after Unicode 14 (2021)
    differently, as signs rather than letters.

    Raises ValueError for a pattern that is no regular expression.
    """

    patterns: tuple[str, ...] = (GPT2_PATTERN,)

    def __post_init__(self):
        for pattern in self.patterns:
            try:
                regex.compile(pattern)
            except (regex.error, TypeError) as error:
                raise ValueError(f"the pattern {pattern!r} cannot be compiled: {error}") from None

    def split(self, text: str) -> list[str]:
        """The pieces of `text`, in order; joined they are `text` again."""
        pieces = [text] if text else []
        for pattern in self.patterns:
            compiled = regex.compile(pattern)  # `regex` keeps compiled patterns
            pieces = [part for piece in pieces for part in _isolate_matches(compiled, piece)]
        return pieces


def _isolate_matches(pattern: regex.Pattern, text: str) -> list[str]:
    pieces, end = [], 0
    for match in pattern.finditer(text):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    pieces.append(text[end:])
    return [piece for piece in pieces if piece]
