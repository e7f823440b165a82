"""Which blocks of a turn the next turn's prompt begins with, by what a chat template does with thoughts.

The templates here are of our own and follow the rules of known ones. `vllm/template_turns.py` adds
those that are installed with vLLM, and prints both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

BLOCK: Final = 16
"""Tokens in a block."""

TURNS: Final = 4
THOUGHT: Final = 20 * BLOCK
ANSWER: Final = 10 * BLOCK

Message = dict[str, Any]
Tokens = Sequence[object]


@dataclass(frozen=True)
class Template:
    """A chat template, and what a model says in its format."""

    name: str
    origin: str
    render: Callable[[list[Message]], Tokens]
    """The prompt for the next answer, with thinking on."""
    thinks: Callable[[str], Tokens]
    """A thought as the model generates it behind the prompt, with its end."""
    answers: Callable[[str], Tokens]
    """The answer behind it, with what ends the request."""


@dataclass(frozen=True)
class Share:
    """Of the blocks of answers, how many the next prompt begins with."""

    found: int
    blocks: int

    def __str__(self) -> str:
        return f"{100 * self.found // self.blocks} %"


@dataclass(frozen=True)
class Measured:
    """What the next turn finds of one, and what a tool's result finds of the call before it."""

    thoughts: Share
    answers: Share
    thoughts_sent_back: Share
    """Where the client sends thoughts back with the answers."""
    answers_sent_back: Share
    before_tools: Share
    """Thoughts before a call, where the client sends them back with the call's result."""


def measure(template: Template) -> Measured:
    """Hold a conversation of several turns, and look for each turn's blocks in the next one's prompt."""
    thoughts, answers = _chat(template, sends_back=False)
    sent_thoughts, sent_answers = _chat(template, sends_back=True)
    return Measured(thoughts, answers, sent_thoughts, sent_answers, _tools(template))


def split(text: str) -> list[str]:
    """Cut a text in tokens: markers, words, and what stands between them."""
    return re.findall(r"<[^<>]*>|\w+|\s|.", text)


def _chat(template: Template, *, sends_back: bool) -> tuple[Share, Share]:
    thoughts = answers = Share(0, 0)
    messages = [_user(0)]
    for turn in range(TURNS):
        prompt = list(template.render(messages))
        thought, answer = _words("thought", turn, THOUGHT), _words("answer", turn, ANSWER)
        generated = [list(template.thinks(thought)), list(template.answers(answer))]
        more = {"reasoning": thought, "reasoning_content": thought} if sends_back else {}
        messages += [{"role": "assistant", "content": answer, **more}, _user(turn + 1)]
        following = list(template.render(messages))
        thoughts = _add(thoughts, prompt, generated[0], following)
        answers = _add(answers, prompt + generated[0], generated[1], following)
    return thoughts, answers


def _tools(template: Template) -> Share:
    thoughts = Share(0, 0)
    messages = [_user(0)]
    for turn in range(TURNS):
        prompt = list(template.render(messages))
        thought = _words("thought", turn, THOUGHT)
        call = {"id": f"call{turn}", "type": "function"}
        messages += [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{**call, "function": {"name": "look", "arguments": '{"at": 1}'}}],
                "reasoning": thought,
                "reasoning_content": thought,
            },
            {"role": "tool", "tool_call_id": call["id"], "content": _words("result", turn, BLOCK)},
        ]
        thoughts = _add(thoughts, prompt, list(template.thinks(thought)), list(template.render(messages)))
    return thoughts


def _add(to: Share, before: Tokens, generated: Tokens, following: Tokens) -> Share:
    """Count the blocks that end in what was generated, and those that the prompt begins with."""
    stream = [*before, *generated]
    same = next(
        (at for at, (one, other) in enumerate(zip(stream, following, strict=False)) if one != other),
        min(len(stream), len(following)),
    )
    first = len(before) // BLOCK
    blocks = len(stream) // BLOCK - first
    return Share(to.found + max(0, same // BLOCK - first), to.blocks + blocks)


def _user(turn: int) -> Message:
    return {"role": "user", "content": _words("question", turn, 4 * BLOCK)}


def _words(kind: str, turn: int, count: int) -> str:
    return " ".join(f"{kind}{turn}x{at}" for at in range(count // 2))


def _last_user(messages: list[Message]) -> int:
    return max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)


def _rendered(
    messages: list[Message], thought_of: Callable[[int, Message], str], end: str, begin: str
) -> list[str]:
    text = ""
    for at, message in enumerate(messages):
        thought = thought_of(at, message) if message["role"] == "assistant" else ""
        calls = "".join(f"<call>{call['function']['name']}</call>" for call in message.get("tool_calls", ()))
        text += f"<|{message['role']}|>\n{thought}{message['content']}{calls}{end}\n"
    return split(text + begin)


def _strips_always() -> Template:
    return Template(
        "DeepSeek-R1",
        "its rule",
        lambda messages: _rendered(messages, lambda at, m: "", "<|end|>", "<|assistant|>\n<think>\n"),
        lambda thought: split(f"{thought}\n</think>\n\n"),
        lambda answer: split(f"{answer}<|end|>"),
    )


def _strips_before_the_last_user() -> Template:
    def render(messages: list[Message]) -> list[str]:
        last = _last_user(messages)

        def thought_of(at: int, message: Message) -> str:
            thought = message.get("reasoning", "")
            return f"<think>\n{thought}\n</think>\n\n" if thought and at > last else ""

        return _rendered(messages, thought_of, "<|end|>", "<|assistant|>\n")

    return Template(
        "Qwen3",
        "its rule",
        render,
        lambda thought: split(f"<think>\n{thought}\n</think>\n\n"),
        lambda answer: split(f"{answer}<|end|>"),
    )


def _empties_before_the_last_user(name: str = "GLM-4.5", keeps: bool = False) -> Template:
    def render(messages: list[Message]) -> list[str]:
        last = -1 if keeps else _last_user(messages)

        def thought_of(at: int, message: Message) -> str:
            thought = message.get("reasoning", "") if at > last else ""
            return f"<think>{thought}</think>\n"

        return _rendered(messages, thought_of, "", "<|assistant|>")

    return Template(
        name,
        "its rule",
        render,
        lambda thought: split(f"\n<think>{thought}</think>\n"),
        lambda answer: split(f"{answer}"),
    )


RULES: Final = (
    _strips_always(),
    _strips_before_the_last_user(),
    _empties_before_the_last_user(),
    _empties_before_the_last_user("GLM-4.7, clear_thinking off", keeps=True),
)


def table(templates: Sequence[Template]) -> str:
    """Return the measurement of each as a table."""
    lines = [
        "| Template | from | answers sent back: thoughts found | answers found "
        "| thoughts sent back too: thoughts found | answers found | a tool's result: thoughts found |",
        "|---|---|---|---|---|---|---|",
    ]
    for template in templates:
        m = measure(template)
        shares = (m.thoughts, m.answers, m.thoughts_sent_back, m.answers_sent_back, m.before_tools)
        lines.append(f"| {template.name} | {template.origin} | " + " | ".join(map(str, shares)) + " |")
    return "\n".join(lines)
