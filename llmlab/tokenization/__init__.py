"""Text to tokens and back: byte-level BPE, WordPiece, streaming, chat templates."""

from llmlab.tokenization.added_tokens import AddedToken
from llmlab.tokenization.base import Tokenizer
from llmlab.tokenization.bpe import BPETokenizer
from llmlab.tokenization.bpe_config import BPEConfig
from llmlab.tokenization.chat_template import CHATML_TEMPLATE, render_chat
from llmlab.tokenization.loading import bert_package_folder, load_tokenizer
from llmlab.tokenization.pre_tokenization import GPT2_PATTERN, PreTokenizer
from llmlab.tokenization.streaming import StreamingDetokenizer
from llmlab.tokenization.wordpiece import WordPieceTokenizer

__all__ = [
    "CHATML_TEMPLATE",
    "GPT2_PATTERN",
    "AddedToken",
    "BPEConfig",
    "BPETokenizer",
    "PreTokenizer",
    "StreamingDetokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "bert_package_folder",
    "load_tokenizer",
    "render_chat",
]
