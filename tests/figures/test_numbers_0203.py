"""The numbers in the figures of chapters 02 and 03, against what their code did not write."""

import cmath
import math

import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig, AutoModelForCausalLM, BertConfig

from llmlab.figures import draw, style
from llmlab.figures.chapter_02 import DIALS, KEY, QUERY
from llmlab.figures.chapter_03 import EMBEDDINGS, W_KEY, W_QUERY, W_VALUE
from llmlab.model.locate import EMBEDDED_MODEL
from llmlab.tokenization import bert_package_folder

SENTENCE = "time flies like an arrow"


def shown(name):
    return [text.get_text() for text in draw(name).drawing.texts]


def boxes(name, kind):
    """The cells of this kind, from left to right, as (x, width, height)."""
    color = to_rgba(style.COLORS[kind])
    patches = [p for p in draw(name).drawing.patches if isinstance(p, Rectangle)]
    found = [p for p in patches if p.get_facecolor() == color]
    return sorted((p.get_x(), p.get_width(), p.get_height()) for p in found)


# Chapter 02


def test_lookup_shows_the_ids_of_berts_vocabulary():
    """As the `tokenizers` library finds them in the same list of tokens."""
    vocabulary = models.WordPiece.from_file(str(bert_package_folder() / "vocab.txt"))
    library = Tokenizer(vocabulary)
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ids = library.encode(SENTENCE).ids
    labels = shown("02_lookup")
    assert [label for label in labels if label.isdigit()] == [str(number) for number in ids]
    config = BertConfig()
    assert any(f"[{config.vocab_size}, {config.hidden_size}]" in label for label in labels)
    assert any(f"[1, {len(ids)}, {config.hidden_size}]" in label for label in labels)


def test_lookup_is_to_scale():
    drawing = draw("02_lookup").drawing
    strip = max(
        (p for p in drawing.patches if isinstance(p, Rectangle)), key=lambda p: p.get_width()
    )
    config = BertConfig()
    drawn, true = strip.get_width() / strip.get_height(), config.vocab_size / config.hidden_size
    assert drawn == pytest.approx(true, rel=0.01)
    starts = {float(line.get_xdata()[0]) for line in drawing.lines}  # arrows out of the strip
    for number in (int(label) for label in shown("02_lookup") if label.isdigit()):
        place = strip.get_x() + strip.get_width() * number / config.vocab_size
        assert min(abs(start - place) for start in starts) < 0.01


def test_wavelengths_by_hand():
    """2π · 10000^(2i / 16) positions for pair i."""
    labels = shown("02_sinusoidal")
    for pair in range(8):
        wavelength = 2 * math.pi * 10_000 ** (pair / 8)
        text = f"{wavelength:,.1f}" if wavelength < 10 else f"{wavelength:,.0f}"
        assert labels[labels.index(f"pair {pair}") + 1] == text
    assert [labels[labels.index(f"pair {pair}") + 1] for pair in (0, 4)] == ["6.3", "628"]


def test_the_map_is_as_dark_as_the_formula_says():
    patches = [p for p in draw("02_sinusoidal").drawing.patches if isinstance(p, Rectangle)]
    cells = sorted((p.get_y(), p.get_x(), p.get_facecolor()[3]) for p in patches[: 28 * 16])
    for index, (_, _, alpha) in enumerate(cells):
        column, position = divmod(index, 28)
        wave = math.cos if column % 2 else math.sin
        number = wave(position / 10_000 ** (2 * (column // 2) / 16))
        assert alpha == pytest.approx((number + 1) / 2, abs=0.0051)  # drawn in two digits


def test_scores_on_the_dials_by_complex_numbers():
    """A pair is a complex number, a rotation a factor e^(im): the score is Re(q k* e^(i(m-n)))."""
    labels = shown("02_rotary")
    product = complex(*QUERY) * complex(*KEY).conjugate()
    expected = [(product * cmath.exp(1j * (m - n))).real for m, n in DIALS]
    scores = [label for label in labels if label.startswith("q · k")]
    assert scores == [f"q · k = {score:.2f}" for score in expected]
    assert scores[0] == scores[1] == scores[2] != scores[3]
    places = [label for label in labels if label.startswith("q at")]
    assert places == [f"q at {m}, k at {n}" for m, n in DIALS]
    assert [f"distance {m - n}" for m, n in DIALS] == [t for t in labels if t[:8] == "distance"]


def test_the_hands_point_where_the_rotation_says():
    """Seven keys at positions 0 to 6, then four dials with a query and a key each; y runs down."""
    hands = [(KEY, position) for position in range(7)]
    for m, n in DIALS:
        hands += [(QUERY, m), (KEY, n)]
    lines = draw("02_rotary").drawing.lines
    assert len(lines) == len(hands)
    for line, (pair, position) in zip(lines, hands, strict=True):
        (x0, x1), (y0, y1) = line.get_xdata(), line.get_ydata()
        angle = cmath.phase(complex(*pair) * cmath.exp(1j * position))
        drawn = cmath.phase(complex(x1 - x0, -(y1 - y0)))
        assert cmath.exp(1j * (drawn - angle)) == pytest.approx(1, abs=1e-4)


# Chapter 03


def short(number, decimals):
    text = f"{number:.{decimals}f}"
    if float(text) == int(float(text)):
        return str(int(float(text)))
    return text.replace("0.", ".") if abs(number) < 1 else text


def test_attention_steps_are_pytorchs():
    q, k, v = EMBEDDINGS @ W_QUERY, EMBEDDINGS @ W_KEY, EMBEDDINGS @ W_VALUE
    causal = torch.ones(5, 5).tril().bool()
    scaled = q @ k.T / math.sqrt(2)
    weights = scaled.masked_fill(~causal, -math.inf).softmax(-1)
    output = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    lower = causal.tolist()
    matrices = {  # name in the figure: numbers, digits after the point, which of them are shown
        "Q [T, D]": (q, 0, None),
        "Kᵀ [D, S]": (k.T, 0, None),
        "scores": (q @ k.T, 0, None),
        "scaled": (scaled, 1, None),
        "masked": (scaled, 1, lower),
        "weights": (weights, 2, lower),
        "V [S, D]": (v, 0, None),
        "output": (output, 1, None),
    }
    labels = shown("03_attention_steps")
    for name, (numbers, decimals, visible) in matrices.items():
        rows = numbers.tolist()
        expected = [
            short(number, decimals)
            for t, row in enumerate(rows)
            for s, number in enumerate(row)
            if visible is None or visible[t][s]
        ]
        end = labels.index(name)  # a matrix is written before its name
        assert labels[end - len(expected) : end] == expected, name


def test_attention_of_flies_by_hand():
    """q = (4, 1): scores 4 and 6; e^(-2 / √2) = .243; weights .20 and .80; output (2, 2.2)."""
    labels = shown("03_attention_steps")
    weights = labels[labels.index("masked") + 6 : labels.index("weights")]
    assert weights[1:3] == [".20", ".80"]
    output = labels[labels.index("V [S, D]") + 1 : labels.index("output")]
    assert output[2:4] == ["2", "2.2"]


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_cache_bytes_are_those_of_a_cache_that_transformers_fills(kv_heads):
    config = AutoConfig.from_pretrained(EMBEDDED_MODEL)
    config.num_key_value_heads = kv_heads
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    cache = model(torch.tensor([[1]]), use_cache=True).past_key_values
    size = sum(4 * (layer.keys.numel() + layer.values.numel()) for layer in cache.layers)
    labels = [label for label in shown("03_shared_heads") if label.endswith(" bytes")]
    assert labels[(4, 2, 1).index(kv_heads)] == f"{size:,} bytes"


def test_shared_heads_are_drawn_by_the_rule():
    """Query head h reads key/value head h // (H / Hkv); the bars are as long as the bytes."""
    drawing = draw("03_shared_heads").drawing
    boxes_of_keys = [b for b in boxes("03_shared_heads", "key") if b[2] == 17]
    assert len(boxes_of_keys) == 4 + 2 + 1
    middles = [x + width / 2 for x, width, _ in boxes_of_keys]
    ends = []
    for line in sorted(drawing.lines, key=lambda line: line.get_xdata()[0]):
        (x0, x1), (y0, y1) = line.get_xdata(), line.get_ydata()
        tip = x0 + (x1 - x0) * (117 - y0) / (y1 - y0)  # the tip lies beyond the line's end
        ends.append(min(range(7), key=lambda i: abs(middles[i] - tip)))
    assert ends == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6]
    bars = [b[1] for b in boxes("03_shared_heads", "key") if b[2] == 14]
    assert [bars[0] / bar for bar in bars] == pytest.approx([1, 2, 4])


def test_what_a_query_sees_is_what_pytorch_lets_it_see():
    """Left: where PyTorch's is_causal gives weight, over values that are the identity.

    Right: a triangle that is moved to the lower right by the keys that are not queries.
    """
    seen = []
    for queries, keys in ((2, 5), (5, 2)):
        q, k, v = torch.zeros(1, queries, 4), torch.zeros(1, keys, 4), torch.eye(keys)[None]
        left = scaled_dot_product_attention(q, k, v, is_causal=True)[0]
        right = torch.ones(queries, keys).tril(diagonal=keys - queries)
        for allowed in (left, right):
            for row, count in enumerate((allowed > 0).sum(-1).tolist()):
                seen.append(f"q{row} sees {count if count else 'nothing'}")
    assert [label for label in shown("03_causal_alignment") if " sees " in label] == seen


def test_squares_of_scores_are_to_scale():
    labels = shown("03_quadratic_scores")
    squares = boxes("03_quadratic_scores", "scores")
    assert len(squares) == 4
    for length, (_, width, height) in zip((64, 128, 256, 512), squares, strict=True):
        assert width == height == pytest.approx(squares[0][1] * length / 64)
        size = torch.zeros(length, length, dtype=torch.float32).nbytes
        kilobytes = f"{size / 1000:.3g}" if size < 1e6 else f"{size / 1e6:.2f}"
        unit = "KB" if size < 1e6 else "MB"
        assert labels[labels.index(f"{length} tokens") + 1] == f"{kilobytes} {unit}"
