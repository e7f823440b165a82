"""BudgetLogits on played batches, by both interfaces of vLLM. It needs torch: test_budget.py runs it."""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.sample.logits_processor.interface import BatchUpdate, MoveDirectionality

from meridian import _rows
from meridian._thought import Terms
from meridian.vllm import budget_logits
from meridian.vllm.budget_logits import BudgetLogits
from meridian.vllm.connector import ForcedEnds
from meridian.vllm.entropies import entropies
from meridian.vllm.forced_ends import OUTBOX

START, END, WORDS, VOCABULARY = 40, 41, 40, 48
ROOM = 6
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTH = 64


class Tokenizer:
    """Two markers, and words of which the even ones end a sentence."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return {"<think>": [START], "</think>": [END]}.get(text, [1, 2])

    def decode(self, ids: list[int]) -> str:
        return "word" if ids[0] % 2 else "end. "


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(budget_logits, "tokenizer_of", lambda config: Tokenizer())
    monkeypatch.setenv("MERIDIAN_ENTROPY_ENABLED", "false")
    monkeypatch.delenv("MERIDIAN_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def config(**more: Any) -> Any:
    model = SimpleNamespace(served_model_name="tiny", model="tiny")
    return SimpleNamespace(
        model_config=model,
        speculative_config=None,
        reasoning_config=None,
        scheduler_config=SimpleNamespace(scheduler_cls=None),
        **more,
    )


class Request:
    """One request, and what it says where it is left alone."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.number = number
        self.cap = chance.choice([None, 0, 1, 3, 7])
        self.numbered = chance.random() < 0.5
        self.prompt = [chance.randrange(WORDS) for _ in range(chance.randrange(3, 9))]
        self.prompt += chance.choice([[], [START], [START, 5], [START, 5, END]])
        self.words = [chance.choice([*range(WORDS), START, END, END]) for _ in range(24)]
        self.output: list[int] = []

    @property
    def params(self) -> Any:
        extra = {} if self.cap is None else {"meridian_max_think_tokens": self.cap}
        named = {"kv_transfer_params": {"meridian_request": f"r{self.number}"}}
        return SimpleNamespace(
            extra_args={**extra, **named, **({"meridian_sequence": self.number} if self.numbered else {})}
        )

    def expected(self, server_cap: int) -> list[int]:
        """The rule of vLLM's own budget: tokens since the first start marker that no end follows."""
        said: list[int] = []
        cap = server_cap if self.cap is None else min(self.cap, server_cap)
        for word in self.words:
            tokens = self.prompt + said
            over = max((i for i, token in enumerate(tokens) if token == END), default=-1)
            begun = next((i for i, token in enumerate(tokens) if token == START and i > over), len(tokens))
            said.append(END if len(tokens) - begun - 1 >= cap else word)
        return said


def sampled(logits: torch.Tensor) -> list[int]:
    return [int(token) for token in logits.argmax(1)]


def logits_for(words: list[int]) -> torch.Tensor:
    logits = torch.rand(len(words), VOCABULARY, device=DEVICE)
    for row, word in enumerate(words):
        logits[row, word] = 9.0
    return logits


class Rows:
    """vLLM's older runner: rows that are removed, filled again, moved and swapped."""

    def __init__(self) -> None:
        self.logic = BudgetLogits(config(), DEVICE, False)
        self.rows: list[Request | None] = []

    def step(self, chosen: list[Request], chance: random.Random) -> None:
        removed = [i for i, r in enumerate(self.rows) if r is not None and r not in chosen]
        for row in removed:
            self.rows[row] = None
        added = []
        for request in (r for r in chosen if r not in self.rows):
            row = removed.pop(0) if removed else len(self.rows)
            self.rows[row:] = [request, *self.rows[row + 1 :]]
            added.append((row, request.params, request.prompt, request.output))
        moved = []
        for row in sorted(removed):
            last = max((i for i, r in enumerate(self.rows) if r is not None), default=-1)
            if last > row:
                self.rows[row], self.rows[last] = self.rows[last], None
                moved.append((last, row, MoveDirectionality.UNIDIRECTIONAL))
        self.rows = [r for r in self.rows if r is not None]
        if len(self.rows) > 1 and chance.random() < 0.3:
            a, b = chance.sample(range(len(self.rows)), 2)
            self.rows[a], self.rows[b] = self.rows[b], self.rows[a]
            moved.append((a, b, MoveDirectionality.SWAP))
        update = BatchUpdate(len(self.rows), removed, added, moved) if removed or added or moved else None
        self.logic.update_state(update)
        rows = [r for r in self.rows if r is not None]
        tokens = sampled(self.logic.apply(logits_for([r.words[len(r.output)] for r in rows])))
        for request, token in zip(rows, tokens, strict=True):
            if chance.random() > 0.1:  # else its prompt is not computed to the end, and vLLM drops the token
                request.output.append(token)


class Slots:
    """vLLM's newer runner: slots, whose tokens are in tensors."""

    def __init__(self) -> None:
        self.slots: list[Request | None] = [None] * ROOM
        self.state = SimpleNamespace(
            device=DEVICE,
            all_token_ids=SimpleNamespace(gpu=torch.zeros(ROOM, LENGTH, dtype=torch.int32, device=DEVICE)),
            total_len=SimpleNamespace(gpu=torch.zeros(ROOM, dtype=torch.int32, device=DEVICE)),
            prompt_len=SimpleNamespace(np=torch.zeros(ROOM, dtype=torch.int32).numpy()),
        )
        self.logic = BudgetLogits(config(), self.state)

    def step(self, chosen: list[Request], chance: random.Random) -> None:
        for slot, request in enumerate(self.slots):
            if request is not None and request not in chosen and chance.random() < 0.5:
                self.slots[slot] = None  # preempted; others wait in their slots
        for request in (r for r in chosen if r not in self.slots):
            free = [i for i, r in enumerate(self.slots) if r is None or r not in chosen]
            slot = chance.choice(free)
            self.slots[slot] = request
            tokens = request.prompt + request.output
            self.state.all_token_ids.gpu[slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
            self.state.total_len.gpu[slot] = len(tokens)
            self.state.prompt_len.np[slot] = len(request.prompt)
            assert self.logic.add_request(slot, request.params)
        self.logic.apply_staged_writes()
        if chance.random() < 0.1:
            return  # no prompt of this step was computed to its end
        rows = [slot for slot, r in enumerate(self.slots) if r in chosen]
        chance.shuffle(rows)
        requests = [self.slots[slot] for slot in rows]
        logits = logits_for([r.words[len(r.output)] for r in requests if r is not None])
        tokens = sampled(self.logic.apply(logits, SimpleNamespace(idx_mapping_np=torch.tensor(rows).numpy())))
        for slot, request, token in zip(rows, requests, tokens, strict=True):
            if request is not None and chance.random() > 0.1:
                self.state.all_token_ids.gpu[slot, int(self.state.total_len.gpu[slot])] = token
                self.state.total_len.gpu[slot] += 1
                request.output.append(token)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("runner", [Rows, Slots])
def test_every_thought_ends_where_vllm_would_end_it(runner: Callable[[], Any], seed: int) -> None:
    """And of each that is ended, and of no other, the connector's scheduler is told."""
    chance = random.Random(seed)
    OUTBOX.begin()
    OUTBOX.give()
    OUTBOX.begin()
    torch.manual_seed(seed)
    server = runner()
    server.logic.set_terms(Terms(5))
    requests = [Request(number, chance) for number in range(20)]
    waiting = list(requests)
    for _ in range(2000):
        if not waiting:
            break
        server.step(chance.sample(waiting, min(len(waiting), chance.randrange(1, ROOM + 1))), chance)
        waiting = [r for r in waiting if len(r.output) < len(r.words)]
    assert not waiting and not server.logic.off
    for request in requests:
        assert request.output == request.expected(5), (request.cap, request.prompt)
    assert server.logic.forced["hard_cap"] > 5
    told = OUTBOX.give()
    assert set(told.values()) == {"hard_cap"}
    # A forced end where the model would have ended by itself is one too.
    changed = {f"r{r.number}" for r in requests if r.output != r.words}
    assert changed <= told.keys() and len(told) < len(requests)


def undecided(nats: float) -> torch.Tensor:
    """A row of so many nats: one word stands out by as much as that takes."""
    low, high = 0.0, 60.0
    for _ in range(60):
        row = torch.zeros(1, VOCABULARY, dtype=torch.float64)
        row[0, 2] = middle = (low + high) / 2
        (entropy,) = _rows.entropies(row)
        assert isinstance(entropy, float)
        low, high = (middle, high) if entropy > nats else (low, middle)
    return row.float().to(DEVICE)


def lone_row(prompt: list[int], output: list[int], **extra: Any) -> BudgetLogits:
    logic = BudgetLogits(config(), DEVICE, False)
    params = SimpleNamespace(extra_args=extra)
    logic.update_state(BatchUpdate(1, [], [(0, params, prompt, output)], []))
    return logic


def test_a_chain_that_loses_its_way_is_ended_at_the_next_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same chain as `overthinking` in testdata/governor: 1833 tokens. It waits in between."""
    monkeypatch.setenv("MERIDIAN_ENTROPY_ENABLED", "true")
    output: list[int] = []
    logic = lone_row([START], output, meridian_sequence=7)
    calm, lost = undecided(0.2), undecided(3.5)
    while len(output) < 2200 and not (output and output[-1] == END):
        if len(output) in (600, 1600):
            logic.update_state(BatchUpdate(0, [0], [], []))
            added = (0, SimpleNamespace(extra_args={"meridian_sequence": 7}), [START], output)
            logic.update_state(BatchUpdate(1, [], [added], []))
        row = (calm if len(output) < 1500 else lost).clone()
        row[0, 3 if len(output) < 1895 else 2] += 1e-3  # the first word that ends a sentence comes at 1895
        token = int(logic.apply(row).argmax())
        output.append(3 if token == 2 and len(output) < 1895 else token)
    assert output.index(END) == 1896 and logic.forced["overthinking"] == 1
    taken = logic.take_entropies()
    assert [(number, position) for number, position, _ in taken] == [(7, i) for i in range(1896)]
    assert taken[3][2] == pytest.approx(0.2, abs=1e-3) and not logic.take_entropies()


def test_who_swap_slots_keep_their_entropies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains as above; both lose their slots at once, and each goes on in that of the other."""
    monkeypatch.setenv("MERIDIAN_ENTROPY_ENABLED", "true")
    monkeypatch.setattr(f"{__name__}.LENGTH", 2300)
    batch = Slots()
    logic, state = batch.logic, batch.state
    outputs: list[list[int]] = [[], []]
    slots: list[int] = []
    calm, lost = undecided(0.2), undecided(3.5)
    for length in range(2200):
        if length in (0, 600, 1600):
            slots = [1, 0] if length == 600 else [0, 1]
            for slot, number in sorted(zip(slots, (7, 8), strict=True)):
                state.prompt_len.np[slot] = 1
                tokens = [START, *outputs[number - 7]]
                state.all_token_ids.gpu[slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
                state.total_len.gpu[slot] = len(tokens)
                assert logic.add_request(slot, SimpleNamespace(extra_args={"meridian_sequence": number}))
        logic.apply_staged_writes()
        row = (calm if length < 1500 else lost).clone()
        row[0, 3 if length < 1895 else 2] += 1e-3
        ctx = SimpleNamespace(idx_mapping_np=torch.tensor(slots).numpy())
        for slot, output, token in zip(
            slots, outputs, sampled(logic.apply(row.repeat(2, 1), ctx)), strict=True
        ):
            output.append(3 if token == 2 and length < 1895 else token)
            state.all_token_ids.gpu[slot, int(state.total_len.gpu[slot])] = output[-1]
            state.total_len.gpu[slot] += 1
        if END in outputs[0] or END in outputs[1]:
            break
    assert [output.index(END) if END in output else None for output in outputs] == [1896, 1896]
    assert logic.forced["overthinking"] == 2 and not logic.off


def test_slots_that_do_not_run_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, chance = Slots(), random.Random(1)
    asked: list[int] = []
    start = batch.logic._tokens.start

    def counting(numbers: torch.Tensor, about: Any) -> None:
        asked.append(len(about[0]))
        start(numbers, about)

    monkeypatch.setattr(batch.logic._tokens, "start", counting)
    requests = [Request(number, chance) for number in range(ROOM)]
    batch.step(requests, chance)
    for _ in range(8):
        batch.step(requests[:1], chance)
    assert asked[0] == ROOM and asked[-1] == 1


def test_entropies_are_those_of_the_probe() -> None:
    torch.manual_seed(1)
    logits = (torch.randn(70, 5000) * torch.linspace(0.01, 30, 70)[:, None]).to(DEVICE)
    logits[3, :4000] = -torch.inf
    logits[4, 1:] = -torch.inf
    exact = [nats for nats in _rows.entropies(logits.double()) if isinstance(nats, float)]
    rows = [row for row in range(70) if row % 7]
    for chosen in (rows, list(range(70))):
        got = entropies(logits, chosen).tolist()
        assert got == pytest.approx([exact[row] for row in chosen], abs=2e-5)
    assert str(entropies(torch.full((1, 4), torch.nan, device=DEVICE), [0]).tolist()) == "[nan]"


def test_no_temperature_and_no_penalty_saves_a_thought() -> None:
    output = [1, 2]
    row = lone_row([START], output, meridian_max_think_tokens=2).apply(
        torch.randn(1, VOCABULARY, device=DEVICE)
    )
    for bent in (row / 1e12, row * 5, row - 2.0):
        assert torch.softmax(bent, 1)[0, END] == 1.0


def test_a_token_that_vllm_does_not_tell_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("vllm").propagate = True
    output = [1, -1]
    logic = lone_row([START], output, meridian_max_think_tokens=1)
    before = torch.randn(1, VOCABULARY, device=DEVICE)
    for _ in range(2):
        assert torch.equal(logic.apply(before.clone()), before)
    told = {id(record) for record in caplog.records if "--logits-processors" in record.getMessage()}
    assert len(told) == 1  # 0.25.1 shows the same record to two handlers
    output[1] = 2
    assert int(logic.apply(before.clone()).argmax()) == END, "it was told later"


def test_tokens_that_were_dropped_are_not_counted() -> None:
    output = [1, 2, 3]
    logic = lone_row([START], output, meridian_max_think_tokens=3)
    assert int(logic.apply(torch.zeros(1, VOCABULARY, device=DEVICE)).argmax()) == END
    del output[1:]
    before = torch.randn(1, VOCABULARY, device=DEVICE)
    assert torch.equal(logic.apply(before.clone()), before)


def test_speculative_decoding_is_refused() -> None:
    spoken = config()
    spoken.speculative_config = object()
    for rest in ((DEVICE, False), (SimpleNamespace(device=DEVICE),)):
        with pytest.raises(ValueError, match="--speculative-config"):
            BudgetLogits(spoken, *rest)


def test_a_model_without_markers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_logits, "tokenizer_of", lambda config: None)
    with pytest.raises(ValueError, match=r"\[model\.'tiny'\].*--reasoning-config"):
        BudgetLogits(config(), DEVICE, False)


@pytest.mark.parametrize(("table", "says"), [("think_end_token_ids = [11]", 11), ("", 33)])
def test_who_says_how_thoughts_end(table: str, says: int, tmp_path: Any) -> None:
    """meridian.toml before vLLM, and vLLM before the tokenizer."""
    if table:
        (tmp_path / "meridian.toml").write_text(
            f"[model.Tiny]\n{table}\nthink_start_token_ids = [10]\nsupports_think_disable = false\n"
        )
    spoken = config()
    spoken.reasoning_config = SimpleNamespace(
        reasoning_start_token_ids=[30],
        reasoning_end_token_ids=[31, 33],
        natural_reasoning_end_token_ids=[33],
        reasoning_parser="qwen3",
    )
    logic = BudgetLogits(spoken, DEVICE, False)
    assert logic._markers.end == ((says,),) and logic._markers.force[-1] == says


def test_a_fault_ends_no_engine(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("vllm").propagate = True
    logic = lone_row([START], ["no token"], meridian_max_think_tokens=1)  # type: ignore[list-item]
    before = torch.randn(1, VOCABULARY, device=DEVICE)
    for _ in range(2):
        assert torch.equal(logic.apply(before.clone()), before)
        logic.update_state(BatchUpdate(0, [0], [], []))
    assert logic.add_request(0, SimpleNamespace(extra_args=None)) is False
    assert logic.off and len([told for told in caplog.records if told.levelname == "ERROR"]) == 1


def test_what_came_past_the_front_end_is_left_out() -> None:
    logic = lone_row([START], [], meridian_max_think_tokens="1; drop", meridian_sequence="x")
    logic.apply(torch.zeros(1, VOCABULARY, device=DEVICE))
    assert not logic.off


def test_an_answer_that_goes_on_here_is_no_thought(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser's streams begin within the thought; the prompt of this one has it, far from its end."""
    opens = replace(BudgetLogits(config(), DEVICE, False)._markers, opens=True)
    monkeypatch.setattr("meridian.vllm.budget_logits.markers_of", lambda *_: opens)
    for answers in (False, True):
        told = {"meridian_answers": answers}
        logic = lone_row([5, END, 5, 5, 5], [], meridian_max_think_tokens=0, kv_transfer_params=told)
        (token,) = sampled(logic.apply(logits_for([7])))
        assert token == (7 if answers else END)


def test_what_is_sampled_after_vllm_has_asked_is_sent_with_the_same_step() -> None:
    """vLLM pickles what the connector gave it when the step is over; of several ranks it makes one."""
    OUTBOX.begin()
    OUTBOX.give()
    OUTBOX.begin()
    told = ForcedEnds(OUTBOX.give())
    named = {"meridian_request": "r"}
    logic = lone_row([START], [1], meridian_max_think_tokens=1, kv_transfer_params=named)
    logic.apply(torch.zeros(1, VOCABULARY, device=DEVICE))
    sent = pickle.loads(pickle.dumps(told))
    assert sent.reasons == {"r": "hard_cap"}
    assert sent.aggregate(ForcedEnds({"r": "hard_cap", "s": "overthinking"})).reasons == {
        "r": "hard_cap",
        "s": "overthinking",
    }
