"""The toy world: a small, closed world of sentences and dialogues, and the model trained on it.

Everything is generated from a seed, so the corpus needs no download and hides nothing: a reader can
print any document, and knows for each answer of the embedded model whether training has seen it.
"""

from llmlab.toyworld.corpus import Document, held_out_dialogues, training_documents
from llmlab.toyworld.countries import COUNTRIES, Country

__all__ = ["COUNTRIES", "Country", "Document", "held_out_dialogues", "training_documents"]
