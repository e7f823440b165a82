"""The rule that ends thoughts, against the vectors that Go's governor is held to, and streams by it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from conftest import TESTDATA

from meridian import load_config
from meridian._thought import Reason, Terms, Thought
from meridian.vllm.thoughts import Stream, ThinkMarkers
from meridian.vllm.transfer_params import leg_of
from meridian.vllm.xargs import RequestArgs, sequence_of

VECTORS = [json.loads(line) for line in (TESTDATA / "governor" / "thoughts.jsonl").read_text().splitlines()]
START, END, LEAD = 8, 9, 7
MARKERS = ThinkMarkers(((START,),), ((END,),), (END,))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_says_what_go_says(vector: dict[str, Any]) -> None:
    fields = (*("max_think_tokens", "min_think_tokens", "entropy", "ema_alpha"), "rpdi_threshold")
    terms = Terms(
        **{name: vector[name] for name in fields},
        eat_ema_variance_threshold=vector["eat_ema_variance_threshold"],
    )
    thought = Thought(RequestArgs(max_think_tokens=vector["asked"] or None).terms(terms))
    think = 0
    said: list[dict[str, Any]] = []
    steps = [step for step in vector["steps"] for _ in range(step["times"])]
    for after, step in enumerate(steps, 1):
        nats = math.nan if step["nats"] is None else step["nats"]
        match step["kind"]:
            case "token":
                thought.token(nats, step["boundary"])
            case "miss":
                thought.miss(1)
            case "fork":
                thought.forked(nats)
        think += step["kind"] != "fork"
        verdict = thought.verdict(think).value
        if not said or said[-1]["verdict"] != verdict:
            said.append({"after": after, "verdict": verdict})
    assert said == vector["verdicts"]


def test_every_reason_is_in_the_vectors() -> None:
    assert {v["verdict"] for vector in VECTORS for v in vector["verdicts"]} == {r.value for r in Reason}


def stream(
    prompt: list[int], cap: int, markers: ThinkMarkers = MARKERS, entropy: bool = False, **asked: int
) -> Stream:
    wish = RequestArgs.read({f"meridian_{name}": value for name, value in asked.items()})
    made = Stream(markers, Terms(cap, entropy=entropy), wish, None, lambda token: token % 2 == 0)
    made.begin(prompt)
    return made


def generate(followed: Stream, model: list[int]) -> list[int]:
    """Return what comes of a model that says these tokens where it is left alone."""
    said = []
    for token in model:
        wanted = followed.wanted()
        said.append(token if wanted is None else wanted)
        followed.take(said[-1])
    return said


@pytest.mark.parametrize("cap", [0, 1, 3])
def test_the_end_stands_at_the_cap(cap: int) -> None:
    assert generate(stream([1, START], cap), [2] * 6) == [2] * cap + [END] + [2] * (5 - cap)
    assert generate(stream([1], cap), [START] + [2] * 6) == [START] + [2] * cap + [END] + [2] * (5 - cap)


def test_a_thought_that_ends_by_itself_is_left_alone() -> None:
    said = [2, 2, END, *[2] * 9]
    assert generate(stream([START], 4), said) == said


def test_every_thought_has_the_whole_budget() -> None:
    said = generate(stream([START], 2), [2, END, 3, START, 4, 4, 4, 5])
    assert said == [2, END, 3, START, 4, 4, END, 5]


def test_what_stands_far_from_the_end_of_a_prompt_opens_nothing() -> None:
    assert generate(stream([START, 1, 1, 1], 1), [2] * 4) == [2] * 4
    assert generate(stream([START, END, 1], 1), [2] * 4) == [2] * 4
    assert generate(stream([START, 1, 1], 3), [2] * 4) == [2, END, 2, 2], "the prompt's tokens count"
    assert generate(stream([1], 1), [2] * 4) == [2] * 4


def test_a_family_whose_streams_begin_within_the_thought() -> None:
    opens = ThinkMarkers(((START,),), ((END,),), (END,), opens=True)
    assert generate(stream([1], 2, opens), [2] * 4) == [2, 2, END, 2]
    assert generate(stream([1, END], 2, opens), [2] * 4) == [2] * 4


def test_a_stream_that_goes_on_after_its_thought_is_an_answer() -> None:
    """Nothing of its prompt tells: the thought, and its end, stand anywhere before."""
    opens = ThinkMarkers(((START,),), ((END,),), (END,), opens=True)
    extra = {"kv_transfer_params": {"meridian_answers": True}}
    for prompt in ([1, 2, END, 3, 4, 5, 6], [1, START, 2]):
        resumed = Stream(opens, Terms(2), RequestArgs.from_client(extra), None, lambda _: False)
        resumed.begin(prompt)
        assert generate(resumed, [2, 3, 4, 5]) == [2, 3, 4, 5], "the end of a thought was put into an answer"
        resumed.rewind()
        assert generate(resumed, [START, 2, 3, 4]) == [START, 2, 3, END], "its own thought has its cap"
    assert leg_of(extra["kv_transfer_params"]) is None, "the connector takes it for a hand-off"
    for params in (None, "x", {}, {"meridian_answers": 1}, {"meridian_answers": "true"}):
        assert not RequestArgs.read({"kv_transfer_params": params}).answers


def test_a_sentence_leads_to_the_end() -> None:
    led = ThinkMarkers(((START,),), ((END,),), (LEAD, LEAD, 6, END))
    assert generate(stream([START], 2, led), [2] * 7) == [2, 2, LEAD, LEAD, 6, END, 2]
    followed = stream([START], 2, led)
    for token in (2, 2, LEAD, 3, LEAD, LEAD):
        followed.take(token)
    assert followed.wanted() == 6, "it goes on where the stream is"


def test_a_thought_goes_on_that_began_elsewhere() -> None:
    assert generate(stream([START, *[1] * 50], 60, think_tokens=57), [2] * 5) == [2, 2, 2, END, 2]


def test_terms_change_while_a_thought_is_under_way() -> None:
    followed = stream([START], 100)
    generate(followed, [2] * 10)
    followed.set_terms(Terms(10))
    assert followed.wanted() == END
    followed.set_terms(Terms(1000))
    assert followed.wanted() == END, "what is being ended is ended"


def test_overthinking_ends_it_at_the_next_boundary() -> None:
    followed = stream([START], 1 << 20, entropy=True)
    ends = []
    for position in range(2200):
        followed.measured = position, 0.2 if position < 1500 else 4.0
        followed.take(3 if position % 10 else 2)
        if followed.wanted() is not None:
            ends.append(position)
            break
    assert ends == [1840] and followed.reason is Reason.OVERTHINKING  # by the vectors after 1833 tokens


@pytest.mark.parametrize(
    ("began_elsewhere", "late", "after"),
    [(0, False, 1833), (0, True, 1845), (1, False, 1844), (900, False, None)],
)
def test_a_thought_whose_entropies_are_not_all_known(
    began_elsewhere: int, late: bool, after: int | None
) -> None:
    """It is overthinking only where that is certain: a little later, or not at all."""
    followed = stream([START], 1 << 20, entropy=True, think_tokens=began_elsewhere)
    for position in range(1500 + 512):
        followed.measured = position - (late and position == 700), 0.2 if position < 1500 else 4.0
        followed.take(2)
        if followed.wanted() is not None:
            assert position + 1 == after and followed.reason is Reason.OVERTHINKING
            return
    assert after is None


NO_COUNTS: list[Any] = [-1, 1 << 31, 1 << 63, 1.5, "12", "x" * 10_000, [1], {}, None, math.nan]


@pytest.mark.parametrize(
    "extra",
    [{"meridian_max_think_tokens": value} for value in NO_COUNTS]
    + [{"meridian_entropy": 2}, {"meridian_max_think_token": 1}, {"meridian_sequence": 3}],
)
def test_a_client_is_told_what_is_wrong(extra: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^vllm_xargs\.{next(iter(extra))}: ") as told:
        RequestArgs.from_client(extra)
    assert len(str(told.value)) < 250


def test_what_a_request_may_ask() -> None:
    server = Terms(100, 10, entropy=True)
    assert RequestArgs.from_client(None) == RequestArgs.from_client({"other": object()}) == RequestArgs()
    assert RequestArgs(max_think_tokens=0).terms(server).max_think_tokens == 0
    assert RequestArgs(max_think_tokens=1000).terms(server) == server, (
        "a client's cap was looser than the server's"
    )
    assert not RequestArgs(entropy=1).terms(Terms(100)).entropy
    assert not RequestArgs(entropy=0).terms(server).entropy
    assert sequence_of({"meridian_sequence": 7}) == 7 and sequence_of({"meridian_sequence": "7"}) is None


def test_terms_are_those_of_the_configuration() -> None:
    config = load_config(
        environ={"MERIDIAN_SCHEDULER_MAX_THINK_TOKENS": "600"}, directory="/nowhere", home="/nowhere"
    )
    terms = Terms.of(config)
    assert (terms.max_think_tokens, terms.min_think_tokens, terms.entropy) == (600, 512, True)
    assert terms.rpdi_threshold == config.entropy.rpdi_threshold


@pytest.mark.parametrize("wrong", [((), (), (1,)), (((1,),), ((2,),), (3,)), (((1,),), ((2,),), ())])
def test_markers_that_end_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        ThinkMarkers(*wrong)
