"""The pages that people read: README and docs/, taken apart into fences, commands and code spans."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_SHELL = ("sh", "bash", "shell", "console")


@dataclass(frozen=True)
class Fence:
    """One fenced block. ``line`` is where its text begins, counted from 1; ``text`` has no common indentation."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of a page: its words as the shell would split them, ``stdin`` what an ``echo`` pipes into it."""

    fence: Fence
    words: tuple[str, ...]
    stdin: str = ""

    @property
    def place(self) -> str:
        return f"{self.fence.place} {' '.join(self.words[:2])}"

    @property
    def name(self) -> str:
        return Path(self.words[0]).name


def fences(page: Path) -> Iterator[Fence]:
    """The fenced blocks of a page."""
    text = page.read_text()
    for match in _FENCE.finditer(text):
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        yield Fence(page, text.count("\n", 0, match.start()) + 2, match["language"], body)


def all_fences(*languages: str) -> list[Fence]:
    """Those of every page in one of the languages."""
    return [fence for page in PAGES for fence in fences(page) if fence.language in languages]


def commands() -> list[Command]:
    """Every command that a page tells its reader to type."""
    return [command for fence in all_fences(*_SHELL) for command in _commands(fence)]


def _commands(fence: Fence) -> Iterator[Command]:
    piped = ""
    words: list[str] = []
    for word in [*_words(fence.text), ";"]:
        if word not in (";", "&&", "|"):
            words.append(word)
            continue
        if word == "|" and words[:1] == ["echo"]:
            piped = " ".join(words[1:]) + "\n"
        elif words:
            yield Command(fence, tuple(words), piped)
            piped = ""
        words = []


def _words(script: str) -> Iterator[str]:
    """A script's words, and its operators; a line's end is ``;``, a comment is nothing."""
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars="&|;\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    comment = False
    for word in lexer:
        if set(word) <= set("&|;\n"):
            comment = comment and "\n" not in word
            if not comment:
                yield ";" if "\n" in word else word
        elif word.startswith("#"):
            comment = True
        elif not comment:
            yield word


def code_spans(text: str) -> list[str]:
    """What stands in backticks, one or two of them."""
    return [match[2].strip() for match in re.finditer(r"(`+)(.+?)\1(?!`)", text)]
