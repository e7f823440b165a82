"""What the next turn finds of thoughts and answers, by chat template.

    .peers/vllm/bin/python python/tests/vllm/template_turns.py

prints the table of docs/performance.md: rules of known templates, written anew, and those templates that come
with vLLM and what it installs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from template_rules import RULES, Message, Template, Tokens, split, table

INSTALLED = "installed with vLLM"


def minicpm() -> Template:
    """MiniCPM-V 4.5, whose template is Qwen3's but for images."""
    import jinja2.sandbox
    import vllm.transformers_utils

    directory = Path(vllm.transformers_utils.__file__).parent / "chat_templates"
    text = (directory / "template_minicpmv45.jinja").read_text()
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    compiled = environment.from_string(text)

    def render(messages: list[Message]) -> Tokens:
        return split(compiled.render(messages=messages, add_generation_prompt=True, enable_thinking=True))

    return Template(
        "MiniCPM-V 4.5",
        INSTALLED,
        render,
        lambda thought: split(f"{thought}\n</think>\n\n"),
        lambda answer: split(f"{answer}<|im_end|>"),
    )


def deepseek(name: str, encode: Callable[..., str], eos: str) -> Template:
    """Render as vLLM's own tokenizer for the model does: it drops thoughts where a user's message is new."""

    def render(messages: list[Message]) -> Tokens:
        drop = messages[-1]["role"] == "user"
        return split(encode(list(messages), thinking_mode="thinking", drop_thinking=drop))

    return Template(
        name,
        INSTALLED,
        render,
        lambda thought: split(f"{thought}</think>"),
        lambda answer: split(f"{answer}{eos}"),
    )


def deepseek_v32() -> Template:
    from vllm.tokenizers import deepseek_v32_encoding as encoding

    return deepseek("DeepSeek-V3.2", encoding.encode_messages, encoding.eos_token)


def deepseek_v4() -> Template:
    from vllm.tokenizers import deepseek_v4_encoding as encoding

    return deepseek("DeepSeek-V4", encoding.encode_messages, encoding.eos_token)


class Words:
    """A tokenizer of words."""

    def encode_text(self, text: str) -> list[Any]:
        return split(text)

    def encode_special(self, token: str) -> Any:
        return token


def inkling() -> Template:
    from vllm.renderers import inkling_encoding as encoding

    words = Words()

    def message(kind: str, text: str, first: str = "") -> list[Any]:
        begin = [] if first else [encoding.MESSAGE_MODEL]
        return [*begin, kind, *words.encode_text(text), encoding.END_MESSAGE]

    return Template(
        "Inkling",
        INSTALLED,
        lambda messages: encoding.render_inkling_messages(messages, words),
        lambda thought: message(encoding.CONTENT_THINKING, thought, "behind the prompt"),
        lambda answer: [*message(encoding.CONTENT_TEXT, answer), encoding.CONTENT_MODEL_END_SAMPLING],
    )


def gpt_oss() -> Template:
    """gpt-oss, by OpenAI's library for its format, as vLLM calls it."""
    import openai_harmony as harmony
    from vllm.entrypoints.openai.parser.harmony_utils import render_for_completion

    encoding = harmony.load_harmony_encoding(harmony.HarmonyEncodingName.HARMONY_GPT_OSS)

    @cache
    def encode(text: str) -> list[int]:
        tokens: list[int] = encoding.encode(text, allowed_special="all")
        return tokens

    def assistant(content: str, channel: str) -> Any:
        return harmony.Message.from_role_and_content(harmony.Role.ASSISTANT, content).with_channel(channel)

    def said(message: Message) -> list[Any]:
        if message["role"] == "user":
            return [harmony.Message.from_role_and_content(harmony.Role.USER, message["content"])]
        if message["role"] == "tool":
            author = harmony.Author.new(harmony.Role.TOOL, "functions.look")
            result = harmony.Message.from_author_and_content(author, message["content"])
            return [result.with_channel("commentary").with_recipient("assistant")]
        thought = message.get("reasoning", "")
        thoughts = [assistant(thought, "analysis")] if thought else []
        for call in message.get("tool_calls", ()):
            arguments = json.dumps(json.loads(call["function"]["arguments"]))
            called = assistant(arguments, "commentary").with_recipient("functions.look")
            return [*thoughts, called.with_content_type("<|constrain|>json")]
        return [*thoughts, assistant(message["content"], "final")]

    def render(messages: list[Message]) -> Tokens:
        tokens: list[int] = render_for_completion([one for message in messages for one in said(message)])
        return tokens

    return Template(
        "gpt-oss",
        INSTALLED,
        render,
        lambda thought: encode(f"<|channel|>analysis<|message|>{thought}<|end|>"),
        lambda answer: encode(f"<|start|>assistant<|channel|>final<|message|>{answer}<|return|>"),
    )


def at_hand() -> list[Template]:
    """Return all, and say on stderr which are not at hand, and why."""
    found = list(RULES)
    for make in (minicpm, deepseek_v32, deepseek_v4, inkling, gpt_oss):
        try:
            found.append(make())
        except Exception as error:  # another vLLM, or a vocabulary that would be downloaded
            print(f"{make.__name__} is not at hand: {error}", file=sys.stderr)
    return found


if __name__ == "__main__":
    print(table(at_hand()))
