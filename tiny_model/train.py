"""Train the model and write it as vLLM loads it: weights, configuration, tokenizer, chat template.

Two lessons, each from what the one before it has written, so that a run that was stopped goes on with the next one. One
thread and one seed: on the same kind of machine, the same weights.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tiny_model.conversations import HARD_SCENES, SCENES, Scene, some_conversation
from tiny_model.template import TEMPLATE, pieces
from tiny_model.tokenizer import PAD, TURN_END, make_tokenizer

WARMUP_STEPS = 100
BATCH_TOKENS = 3000
HEARD_WEIGHT = 0.2
"""How much what others say counts, beside 1 for the model's own words. A tool's results repeat names and versions, so
predicting them teaches copying long before the model's few words would."""

Sample = tuple[list[int], list[float]]
"""Tokens, and how much each counts."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """``steps`` batches; the first ``short_steps`` of conversations of one scene, for to copy is learnt from those."""

    steps: int
    short_steps: int
    learning_rate: float
    scenes: Mapping[Scene, float]


LESSONS = (Lesson(1800, 900, 2e-3, SCENES), Lesson(600, 0, 1e-3, HARD_SCENES))


def train(folder: Path, *, seed: int, threads: int) -> None:
    """Write the trained model to ``folder``; goes on after the last lesson that is done there."""
    torch.set_num_threads(threads)
    progress = folder / "lessons-done"
    done = int(progress.read_text(encoding="utf-8")) if progress.exists() else 0
    for number, lesson in list(enumerate(LESSONS))[done:]:
        torch.manual_seed(seed + number)
        rng = Random(seed + number)
        if number == 0:
            tokenizer = make_tokenizer(rng)
            model = _model(tokenizer)
        else:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
            # The one in the folder is for vLLM; transformers takes its temperature for a mistake, and would not save.
            model.generation_config = GenerationConfig.from_model_config(model.config)
        print(f"lesson {number + 1} of {len(LESSONS)}", flush=True)
        _teach(model, tokenizer, rng, lesson, folder)
        progress.write_text(str(number + 1), encoding="utf-8")


def _teach(model: Qwen3ForCausalLM, tokenizer: Tokenizer, rng: Random, lesson: Lesson, folder: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lesson.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    short = _batches(rng, tokenizer, lesson, longest=1)
    long = _batches(rng, tokenizer, lesson, longest=5)
    started, recent = time.monotonic(), 0.0
    for step in range(lesson.steps):
        decay = max(0.03, 1 - step / lesson.steps)
        for group in optimizer.param_groups:
            group["lr"] = lesson.learning_rate * min((step + 1) / WARMUP_STEPS, decay)
        tokens, weights = next(short if step < lesson.short_steps else long)
        weights = weights[:, 1:]
        logits = model(input_ids=tokens).logits[:, :-1]
        losses = cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        said = losses[weights == 1].mean().item()
        recent = said if step == 0 else 0.95 * recent + 0.05 * said
        if step % 50 == 49 or step == lesson.steps - 1:
            print(
                f"step {step + 1} of {lesson.steps}, loss {recent:.4f}, {time.monotonic() - started:.0f} s", flush=True
            )
        if step % 500 == 499 or step == lesson.steps - 1:
            _save(folder, model, tokenizer)


def _model(tokenizer: Tokenizer) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=-(-tokenizer.get_vocab_size() // 64) * 64,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(TURN_END),
        pad_token_id=tokenizer.token_to_id(PAD),
    )
    return Qwen3ForCausalLM(config)


def _batches(
    rng: Random, tokenizer: Tokenizer, lesson: Lesson, *, longest: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of conversations of about one length, so that little of a batch is padding: tokens and weights."""
    pad = tokenizer.token_to_id(PAD)
    while True:
        samples = sorted(
            (_sample(rng, tokenizer, lesson, longest) for _ in range(160)), key=lambda sample: len(sample[0])
        )
        groups: list[list[Sample]] = [[]]
        for sample in samples:
            if groups[-1] and (len(groups[-1]) + 1) * len(sample[0]) > BATCH_TOKENS:
                groups.append([])
            groups[-1].append(sample)
        rng.shuffle(groups)
        for group in groups:
            width = max(len(tokens) for tokens, _ in group)
            yield (
                torch.tensor([tokens + [pad] * (width - len(tokens)) for tokens, _ in group]),
                torch.tensor([weights + [0.0] * (width - len(weights)) for _, weights in group]),
            )


def _sample(rng: Random, tokenizer: Tokenizer, lesson: Lesson, longest: int) -> Sample:
    tokens: list[int] = []
    weights: list[float] = []
    for text, is_said in pieces(some_conversation(rng, longest, lesson.scenes)):
        ids = tokenizer.encode(text).ids
        tokens += ids
        weights += [1.0 if is_said else HEARD_WEIGHT] * len(ids)
    return tokens, weights


def _save(folder: Path, model: Qwen3ForCausalLM, tokenizer: Tokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    model.to(torch.float32)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=TURN_END, pad_token=PAD, model_max_length=8192)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    # vLLM takes its default sampling from here: greedy, so that a client without a temperature gets the same answer.
    generation = {
        "eos_token_id": model.config.eos_token_id,
        "pad_token_id": model.config.pad_token_id,
        "temperature": 0.0,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2), encoding="utf-8")
