"""The documentation against the program: code runs, settings are defaults, links lead somewhere."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import airsplit as air
from airsplit.cli.app import main
from airsplit.scenario.scenario import Scenario

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


# The first line of a block that belongs into a file.
FILE_NAME = re.compile(r"# (\w+)\.(py|toml)\n")


def read(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


def find_blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", read(page), flags=re.DOTALL)


def test_the_documented_scenario_has_every_setting_at_its_default() -> None:
    page = ROOT / "docs" / "scenarios.md"
    documented, *_ = find_blocks(page, "toml")
    assert Scenario.from_toml(documented) == Scenario.from_toml('[model]\nname = "alexnet"\n')

    script = runpy.run_path(str(ROOT / "docs" / "_site" / "settings.py"))
    text = read(page)
    assert script["update_page"](text) == text, "run python docs/_site/settings.py"


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """Enter a folder with all files that pages name, and the scenario of the quickstart."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (fleet,) = find_blocks(ROOT / "docs" / "quickstart.md", "csv")
    (tmp_path / "fleet.csv").write_text(fleet)

    for page in PAGES:
        files: dict[str, str] = {}
        for block in find_blocks(page, "python") + find_blocks(page, "text"):
            if match := FILE_NAME.match(block):
                file = f"{match[1]}.{match[2]}"
                assert file not in files, f"{page.name} has two blocks {file}"
                files[file] = block
                # Pages may use one name for different modules.
                monkeypatch.delitem(sys.modules, match[1], raising=False)
        for file, block in files.items():
            (tmp_path / file).write_text(block)

    assert main(["presets", "paper-alexnet"]) == 0
    preset = capsys.readouterr().out
    scenario = re.sub(
        r"\[fleet\].*?\n\n", '[fleet]\nfile = "fleet.csv"\n\n', preset, flags=re.DOTALL
    )
    (tmp_path / "my.toml").write_text(scenario)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page: Path, workplace: Path) -> None:
    for block in find_blocks(page, "python"):
        exec(compile(block, page.name, "exec"), {})  # noqa: S102 - our own documentation


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_plan_command_works(
    page: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = re.compile(r"^airsplit ((?:plan|profile|presets|data) [^>#\n]*)", re.MULTILINE)
    for block in find_blocks(page, "bash"):
        for arguments in command.findall(block):
            assert main(arguments.split()) == 0, arguments
            assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_can_be_copied_as_they_stand(page: Path) -> None:
    for block in find_blocks(page, "bash"):
        assert not [line for line in block.splitlines() if line.startswith("$ ")]
    for block in find_blocks(page, "console"):
        # A prompt is for a command with its output.
        assert "\n" in block.removeprefix("$ ").strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", read(page)):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_reference_has_every_public_name() -> None:
    page = ROOT / "docs" / "api.md"
    documented = re.findall(r"^::: airsplit\.(\w+)$", read(page), flags=re.MULTILINE)
    assert sorted(documented) == sorted(air.__all__)


def test_the_readme_has_the_numbers_of_the_network_benchmark() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    results = (ROOT / "benchmarks/results/network.md").read_text(encoding="utf-8")
    rows = {
        "Airsplit's plan": "planned splits and shares, paced",
        "equal shares, best split for each device": "equal shares, each device's best split",
        "federated averaging (FedAvg)": "FedAvg, its own best shares, paced",
        "Airsplit's splits over unpaced TCP": "planned splits, unpaced TCP",
    }
    for label, name in rows.items():
        stated = re.search(
            rf"\| {re.escape(label)}[^|]*\| \**([\d.]+) s\**(?: \(([\d.]+)×\))? \|", readme
        )
        measured = re.search(
            rf"\| {re.escape(name)} \|[^|]*\| ([\d.]+) \| ([\d.]+) \|[^|]*\| ([\d.]+)× \|", results
        )
        assert stated is not None, label
        assert measured is not None, name
        planned_s, measured_s, ratio = measured.groups()
        assert_rounded(stated[1], measured_s)
        assert_rounded(stated[2] or "1.00", ratio)
        if label == "Airsplit's plan":
            predicted = re.search(r"predicted: ([\d.]+) s", stated[0])
            assert predicted is not None
            assert_rounded(predicted[1], planned_s)

    computing = re.search(
        r"([\d.]+) s a round planned, ([\d.]+) s measured over 11 rounds \(\+([\d.]+)%", results
    )
    assert computing is not None
    planned_s, measured_s, percent = computing.groups()
    sentence = f"took {percent} % longer than planned ({measured_s} s for {planned_s} s)"
    assert sentence in " ".join(readme.split())


def assert_rounded(text: str, exact: str) -> None:
    """Assert that a number in the README is the measured one, rounded to the digits shown."""
    decimals = len(text.partition(".")[2])
    assert float(text) == round(float(exact), decimals)
