"""Chat templates: how a conversation becomes one row of tokens.

A chat model is trained on conversations written out as one text, with control tokens between the
turns. The template, written in Jinja, says how. It runs in a sandbox, since templates come with
downloaded models.

A message must not be able to end its own turn: "<|im_end|>" typed by a user is text. But the
template pastes messages and control tokens into one string, in which the two look alike. So
whatever in a message could be read as a control token gets a mark inside: a character that occurs
nowhere in the conversation. In the finished string, a control token without a mark came from the
template. Then the marks are taken out. A message that has nothing of the kind is never touched, so
that it has the tokens which the model saw in training.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmlab.tokenization.base import Tokenizer

# The layout that Qwen and many others use; its control tokens are <|im_start|> and <|im_end|>.
CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

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

    Raises ValueError for messages without role and content, or that the template cannot write.
    """
    _check_messages(messages)
    special_tokens = sorted(tokenizer.special_tokens, key=len, reverse=True)
    mark = _unused_character(template, messages)
    guarded = [
        {**message, "content": _guard(message["content"], special_tokens, mark)}
        for message in messages
    ]
    text = render_chat(
        template,
        guarded,
        add_generation_prompt=add_generation_prompt,
        bos_token=_token(tokenizer, tokenizer.bos_id),
        eos_token=_token(tokenizer, tokenizer.eos_id),
    )
    if not special_tokens:
        return tokenizer.encode(text)
    ids = []
    control = re.compile(f"({'|'.join(map(re.escape, special_tokens))})(?!{mark})")
    # A pattern with one group makes re.split return the matches too, at the odd positions.
    for position, piece in enumerate(control.split(text)):
        if position % 2:
            ids.append(tokenizer.special_tokens[piece])
        else:
            ids.extend(tokenizer.encode(piece.replace(mark, "")))
    return ids


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
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    # The settings with which transformers renders, and for which templates are written.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    try:
        return environment.from_string(template).render(
            messages=messages,
            add_generation_prompt=add_generation_prompt,
            bos_token=bos_token,
            eos_token=eos_token,
        )
    except Exception as error:  # a template is a program, which can fail in every way
        raise ValueError(f"the chat template cannot write these messages: {error}") from None


def _guard(content: str, special_tokens: Sequence[str], mark: str) -> str:
    """Puts a mark after the first character of all that is, or could grow into, a special token.

    It could grow at the end of a message, where the next text follows: "<|im_" and then "end|>".
    """
    longest = max(map(len, special_tokens), default=0)
    beginnings = {token[0] for token in special_tokens}
    stripped = content.rstrip()  # a template may strip messages
    guarded = []
    for position, character in enumerate(content):
        guarded.append(character)
        if character in beginnings:
            rest = stripped[position : position + longest]
            if any(rest.startswith(token) or token.startswith(rest) for token in special_tokens):
                guarded.append(mark)
    return "".join(guarded)


def _unused_character(template: str, messages: Sequence[Mapping[str, str]]) -> str:
    used = set(template).union(*(message["content"] for message in messages))
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
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise ValueError(f'a message has exactly a "role" and a "content"; got {message!r}')
        if not isinstance(message["role"], str) or not re.fullmatch(r"[\w-]+", message["role"]):
            raise ValueError(f"a role is one word, such as user; got {message['role']!r}")
        if not isinstance(message["content"], str):
            raise TypeError(
                f"the content of a message must be a str, not {type(message['content']).__name__}"
            )
