"""Chat templates: how a conversation becomes one row of tokens.

A chat model is trained on conversations written out as one text, with control tokens between the
turns. The template, written in Jinja, says how. It runs in a sandbox, since templates come with
downloaded models.

A message must not be able to end its own turn: "<|im_end|>" typed by a user is text. But the
template pastes messages and control tokens into one string, in which the two look alike. So, before
the template runs, every control token in its own strings gets a mark behind each character, and so
does all that it may put one together from, such as "<|", a role and "|>". The mark is a character
that occurs nowhere in the conversation. In the finished string, what is marked through and through
is a control token; the rest is text. Messages go in as they are: the template can look into them,
trim them, cut them or write them in lower case, and no mark comes of it.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmlab.tokenization.base import Tokenizer

# The layout that Qwen and many others use; its control tokens are <|im_start|> and <|im_end|>.
CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

MESSAGE_KEYS = ("role", "content")

# Unicode keeps these code points free for uses inside a program; they stand for no character.
NONCHARACTERS = tuple(chr(code_point) for code_point in range(0xFDD0, 0xFDF0))


def encode_chat(
    tokenizer: "Tokenizer",
    messages: Sequence[Mapping[str, str]],
    template: str,
    *,
    add_generation_prompt: bool = True,
) -> list[int]:
    """The token ids of a conversation; control tokens come from the template only.

    Raises ValueError for messages without role and content, or that the template cannot write, and
    where a template looks for control tokens within messages, or takes its own apart.
    """
    _check_messages(messages)
    special_tokens = tokenizer.special_tokens
    settings = {
        "add_generation_prompt": add_generation_prompt,
        "bos_token": _token(tokenizer, tokenizer.bos_id),
        "eos_token": _token(tokenizer, tokenizer.eos_id),
    }
    text = _render(template, messages, settings)
    if not special_tokens:
        return tokenizer.encode(text)
    mark = _unused_character([template, *special_tokens, *(m["content"] for m in messages)])
    try:
        marked_text = _render_marked(template, messages, settings, special_tokens, mark)
    except ValueError:  # the marks were in its way, since without them it went well
        marked_text = ""
    if marked_text.replace(mark, "") != text:
        raise ValueError(
            "this chat template looks for control tokens within messages, or takes its own apart; "
            "llmlab cannot tell then which of them are real: use a template that only writes them"
        )
    ids = []
    longest_first = sorted(special_tokens, key=len, reverse=True)
    control = re.compile("|".join(re.escape(_with_marks(token, mark)) for token in longest_first))
    end = 0
    for match in control.finditer(marked_text):
        ids.extend(tokenizer.encode(marked_text[end : match.start()].replace(mark, "")))
        ids.append(special_tokens[match.group().replace(mark, "")])
        end = match.end()
    return ids + tokenizer.encode(marked_text[end:].replace(mark, ""))


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, str]],
    *,
    add_generation_prompt: bool = True,
    bos_token: str = "",
    eos_token: str = "",
) -> str:
    """The conversation as the template writes it.

    Do not encode this text as it is: a message may hold what looks like a control token.

    Raises ValueError where the template fails.
    """
    settings = {
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos_token,
        "eos_token": eos_token,
    }
    return _render(template, messages, settings)


def _render(
    template: str,
    messages: Sequence[Mapping[str, str]],
    settings: Mapping[str, Any],
    rewrite: Callable[[str], str] = str,
) -> str:
    """rewrite: what to do with the template's own strings before it runs."""
    from jinja2 import TemplateError, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    # The settings with which transformers renders, and for which templates are written.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.filters["tojson"] = _to_json
    try:
        tree = environment.parse(template)
        for node in tree.find_all(nodes.TemplateData):
            node.data = rewrite(node.data)
        for node in tree.find_all(nodes.Const):
            if isinstance(node.value, str) and node.value not in MESSAGE_KEYS:
                node.value = rewrite(node.value)
        return environment.from_string(tree).render(messages=messages, **settings)
    except Exception as error:  # a template is a program, which can fail in every way
        raise ValueError(f"the chat template cannot write these messages: {error}") from None


def _render_marked(
    template: str,
    messages: Sequence[Mapping[str, str]],
    settings: Mapping[str, Any],
    special_tokens: Iterable[str],
    mark: str,
) -> str:
    """The conversation with marks in all that comes from the template and may be control."""
    tokens = tuple(special_tokens)
    beginnings = tuple({token[:size] for token in tokens for size in range(1, len(token))})
    ends = tuple({token[size:] for token in tokens for size in range(1, len(token))})

    def rewrite(text: str) -> str:
        whole = any(token in text for token in tokens)
        part = text.endswith(beginnings) or text.startswith(ends)
        part = part or any(text in token for token in tokens)
        return _with_marks(text, mark) if whole or part else text

    marked_messages = [{**message, "role": rewrite(message["role"])} for message in messages]
    marked_settings = {
        name: rewrite(value) if isinstance(value, str) else value
        for name, value in settings.items()
    }
    return _render(template, marked_messages, marked_settings, rewrite)


def _with_marks(text: str, mark: str) -> str:
    return "".join(character + mark for character in text)


def _to_json(value: Any, *, ensure_ascii: bool = False, **options: Any) -> str:
    """Jinja's own filter writes for HTML: "<" would become "\\u003c"."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _unused_character(texts: Iterable[str]) -> str:
    used = set().union(*texts)
    for character in NONCHARACTERS:
        if character not in used:
            return character
    raise ValueError(
        "the messages use all of the code points U+FDD0 to U+FDEF, which are no characters"
    )


def _token(tokenizer: "Tokenizer", token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.id_to_token(token_id)


def _check_messages(messages: Sequence[Mapping[str, str]]) -> None:
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise TypeError(
            'messages must be a list such as [{"role": "user", "content": "Hello"}], '
            f"not {type(messages).__name__}"
        )
    if not messages:
        raise ValueError("a conversation needs at least one message")
    for message in messages:
        if not isinstance(message, Mapping) or set(message) != set(MESSAGE_KEYS):
            raise ValueError(f'a message has exactly a "role" and a "content"; got {message!r}')
        if not isinstance(message["role"], str) or not re.fullmatch(r"[\w-]+", message["role"]):
            raise ValueError(f"a role is one word, such as user; got {message['role']!r}")
        if not isinstance(message["content"], str):
            raise TypeError(
                f"the content of a message must be a str, not {type(message['content']).__name__}"
            )
