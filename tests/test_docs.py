"""The documentation says what the program does: its code runs, its settings are the defaults, its links lead somewhere."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import airsplit as air
from airsplit.cli.app import main
from airsplit.scenario.scenario import Scenario

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )


def test_the_documented_scenario_has_every_setting_at_its_default() -> None:
    (documented,) = blocks(ROOT / "docs" / "scenarios.md", "toml")
    minimal = Scenario.from_toml('[model]\nname = "alexnet"\n')
    assert Scenario.from_toml(documented) == minimal
    written = tomllib.loads(documented)
    for table, section in minimal.settings().items():
        for key in type(section).model_fields:
            assert key in written[table] or re.search(
                rf"^# {key} = |{key} = \[|\({key}\)", documented, flags=re.MULTILINE
            ), f"{table}.{key}"


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """A folder with the quickstart's fleet and the scenario that it makes of it."""
    monkeypatch.chdir(tmp_path)
    (fleet,) = blocks(ROOT / "docs" / "quickstart.md", "csv")
    (tmp_path / "fleet.csv").write_text(fleet)
    for page in PAGES:
        for name, kind in re.findall(
            r"```(?:python|text)\n# (\w+)\.(py|toml)\n", page.read_text(encoding="utf-8")
        ):
            (code,) = (
                block
                for block in (*blocks(page, "python"), *blocks(page, "text"))
                if block.startswith(f"# {name}.{kind}\n")
            )
            (tmp_path / f"{name}.{kind}").write_text(code)
            monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["presets", "paper-alexnet"]) == 0
    preset = capsys.readouterr().out
    (tmp_path / "my.toml").write_text(
        re.sub(r"\[fleet\].*?\n\n", '[fleet]\nfile = "fleet.csv"\n\n', preset, flags=re.DOTALL)
    )
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page: Path, workplace: Path) -> None:
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), {})  # noqa: S102 - our own documentation


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_plan_command_works(
    page: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in blocks(page, "bash"):
        for line in re.findall(
            r"^airsplit ((?:plan|profile|presets|data) [^>#\n]*)", block, flags=re.MULTILINE
        ):
            assert main(line.split()) == 0, line
            assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_can_be_copied_as_they_stand(page: Path) -> None:
    assert not [
        line
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert all("\n" in block.removeprefix("$ ").strip() for block in blocks(page, "console")), (
        "a prompt is for a command with its output"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_reference_has_every_public_name() -> None:
    shown = re.findall(
        r"^::: airsplit\.(\w+)$",
        (ROOT / "docs" / "api.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert sorted(shown) == sorted(air.__all__)


def test_the_readme_has_the_numbers_of_the_network_benchmark() -> None:
    readme, results = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "benchmarks/results/network.md")
    )
    ways = {
        "planned splits and shares": "planned splits and shares, paced",
        "equal shares, each device's best split": "equal shares, each device's best split",
        "federated averaging (FedAvg), its own best shares": "FedAvg, its own best shares, paced",
        "planned splits, unpaced TCP": "planned splits, unpaced TCP",
    }
    for said, way in ways.items():
        row = re.search(rf"\| {re.escape(said)}[^|]*\| \**([\d.]+) s\** \| ([\d.]+)×? \|", readme)
        measured = re.search(
            rf"\| {re.escape(way)} \|[^|]*\|[^|]*\| ([\d.]+) \|[^|]*\| ([\d.]+)× \|", results
        )
        assert row is not None
        assert measured is not None
        for short, whole in zip(row.groups(), measured.groups(), strict=True):
            decimals = len(short.partition(".")[2])
            assert float(short) == round(float(whole), decimals), said
    planned, took, more = re.search(
        r"([\d.]+) s a round planned, ([\d.]+) s measured over 11 rounds \(\+([\d.]+)%", results
    ).groups()  # type: ignore[union-attr]
    assert f"took {more} % longer than planned ({took} s for {planned} s)" in " ".join(
        readme.split()
    )
