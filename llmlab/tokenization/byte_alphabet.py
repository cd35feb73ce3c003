"""The byte alphabet: one printable character for each of the 256 bytes.

A byte-level vocabulary is kept as text (in `tokenizer.json`, in merge tables, on the page), but
many bytes have no printable character of their own. GPT-2 gives each byte one: bytes that print
keep their Latin-1 character, and the others take the characters from U+0100 on, in order. The space
becomes "Ġ", the newline "Ċ".

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2.
"""

from types import MappingProxyType


def _byte_alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + position) for position, byte in enumerate(others)
    }


BYTE_TO_SYMBOL = MappingProxyType(_byte_alphabet())
SYMBOL_TO_BYTE = MappingProxyType({symbol: byte for byte, symbol in BYTE_TO_SYMBOL.items()})

# The 256 symbols in the order of their code points, which is the order of their ids.
BYTE_SYMBOLS = tuple(sorted(SYMBOL_TO_BYTE))


def to_symbols(data: bytes) -> str:
    """Writes bytes in the byte alphabet: b" time" becomes "Ġtime"."""
    return "".join(BYTE_TO_SYMBOL[byte] for byte in data)


def from_symbols(symbols: str) -> bytes:
    """Reads a text in the byte alphabet back: "Ġtime" becomes b" time".

    Raises KeyError for a character that is no symbol of the byte alphabet.
    """
    return bytes(SYMBOL_TO_BYTE[symbol] for symbol in symbols)
