"""What is measured of chat templates, on rules of which the answer is known."""

from __future__ import annotations

import dataclasses

import pytest
from template_rules import RULES, Measured, Share, Template, measure, split, table


def whole(share: Share) -> bool:
    return share.found == share.blocks > 0


@pytest.mark.parametrize("template", RULES[:3], ids=lambda template: template.name)
def test_what_a_template_strips_is_not_found_again(template: Template) -> None:
    measured = measure(template)
    chat = (
        measured.thoughts,
        measured.answers,
        measured.thoughts_sent_back,
        measured.answers_sent_back,
    )
    assert all(share.found == 0 and share.blocks > 20 for share in chat), measured
    assert whole(measured.before_tools) == (template.name != "DeepSeek-R1")


def test_what_a_template_keeps_is_found_where_the_client_sends_it_back() -> None:
    measured = measure(RULES[3])
    assert measured.thoughts.found == measured.answers.found == 0, "the client did not send thoughts"
    assert whole(measured.thoughts_sent_back) and whole(measured.answers_sent_back), measured
    assert whole(measured.before_tools)


def test_blocks_are_found_up_to_the_first_difference() -> None:
    """A template that writes the end of a thought otherwise than the model loses what stands behind."""
    keeps = RULES[3]
    other = dataclasses.replace(keeps, thinks=lambda thought: split(f"\n<think>{thought}\n</think>\n"))
    measured: Measured = measure(other)
    assert measured.thoughts_sent_back.found >= measured.thoughts_sent_back.blocks - 4 > 70
    assert measured.answers_sent_back.found == 0


def test_the_table_has_a_row_for_each() -> None:
    rows = table(RULES).splitlines()
    assert len(rows) == 2 + len(RULES)
    assert rows[3] == "| Qwen3 | its rule | 0 % | 0 % | 0 % | 0 % | 100 % |"
