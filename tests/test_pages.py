"""The pages that people read, held against the code: every setting has its row, every example loads."""

import re
from pathlib import Path

import pytest

from gateway.settings import REPEATABLE, SECRETS, Settings, flag, load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ROWS = [line for line in README.splitlines() if re.match(r"\| (`--[^|]*)? *\| `GATEWAY_", line)]
DEFAULT_IN_WORDS = {
    "search_base_url": "the provider's",
    "seal_keys": "random",
    "gateway_tools": "all",
    "proxy_paths": "see below",
    "proxy_pings": "on",
}


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_has_a_row_with_its_flag_and_default(name: str) -> None:
    variable = f"`GATEWAY_{name.upper()}`"
    (row,) = [row for row in ROWS if variable in row]
    flags, variables, defaults = ([cell.strip() for cell in column.split(",")] for column in row.split("|")[1:4])
    place = variables.index(variable)
    if name in SECRETS:
        assert flags == [""]
    else:
        assert flags[place].split()[0].strip("`") == flag(name)
        assert ("(repeatable)" in flags[place]) == (name in REPEATABLE)
    value = Settings.model_fields[name].default
    shown = DEFAULT_IN_WORDS.get(name) or (str(value) if value not in (None, (), {}) else "none")
    assert defaults[place].strip("`") == shown


def test_no_row_is_left_for_a_setting_that_is_gone() -> None:
    named = {name.lower() for row in ROWS for name in re.findall(r"`GATEWAY_([A-Z_]+)`", row.split("|")[2])}
    assert named == set(Settings.model_fields)


def test_the_readme_lists_the_paths_that_are_proxied() -> None:
    for path in Settings.model_fields["proxy_paths"].default:
        assert f"`{path}`" in README


def test_the_example_config_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"GATEWAY_{name.upper()}", raising=False)
    settings = load({}, ROOT / "examples" / "gateway.toml")
    assert settings.tool_aliases == {"WebSearch": "web_search"}
    assert settings.model_map == {"claude-*": "qwen3"}
    assert settings.max_tokens_cap == "auto"


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    assert links
    for link in links:
        assert "://" in link or (ROOT / link).exists(), link


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z0-9-]+)|`make ([a-z0-9-]+)`", README, re.MULTILINE))
    assert {one or other for one, other in named} <= targets


def test_the_architecture_names_every_room_of_the_gateway() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    modules = {path.name for path in (ROOT / "gateway").glob("*.py")} - {"__init__.py"}
    packages = {f"{path.parent.name}/" for path in (ROOT / "gateway").glob("*/__init__.py")}
    assert {room for room in modules | packages if room not in page} == set()
    named = re.findall(r"`([a-z_]+\.py|[a-z0-9_]+/)`", page)
    elsewhere = {
        "conformance/",
        "faults/",
        "bench/",
        "load/",
        "cassettes/",
        "e2e/",
        "tests/",
        "tiny_model/",
        "recorder/",
    }
    inside = {path.name for room in ("gateway", "recorder") for path in (ROOT / room).rglob("*.py")}
    assert {room for room in named if room not in packages | elsewhere | inside} == set()
