"""A byte-level BPE tokenizer of about a thousand tokens, learnt from the conversations themselves."""

from random import Random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from tiny_model.conversations import some_conversation
from tiny_model.template import pieces

PAD, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""What vLLM's reasoning and tool parsers look for. They must be one token each, and visible in the output text."""


def make_tokenizer(rng: Random, *, size: int = 1000, conversations: int = 4000) -> Tokenizer:
    """Train a tokenizer of ``size`` tokens, the marks on top."""
    tokenizer = Tokenizer(models.BPE())
    # Digit by digit: a version number it never saw must be copied, not remembered.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    texts = ("".join(text for text, _ in pieces(some_conversation(rng))) for _ in range(conversations))
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    return tokenizer
