"""The page of a run: self-contained, escaped, and complete for any run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from airsplit.core import palette
from airsplit.core.errors import FileProblem
from airsplit.report.page import read_style_sheet, write_report
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.scenario.settings import ALGORITHMS
from report.run_folders import a_long_run, a_plan, a_record, a_run, a_scenario


def read(folder: Path) -> str:
    """Return the page of a folder, after checking that it is well-formed."""
    text = write_report(folder).read_text(encoding="utf-8")
    ElementTree.fromstring(text.partition("\n")[2])  # noqa: S314 - our own page
    return text


def words(page: str) -> str:
    """Return the text that a reader sees, on one line."""
    body = page[page.index("<body>") :].replace("\N{NO-BREAK SPACE}", " ")
    return " ".join(re.sub("<[^>]*>", " ", body).split())


def test_the_page_is_written_into_the_folder_and_repeats(tmp_path: Path) -> None:
    a_run(tmp_path / "run", [a_record(1), a_record(2)])
    path = write_report(str(tmp_path / "run"))
    assert path == tmp_path / "run" / "report.html"
    first = path.read_bytes()
    assert write_report(tmp_path / "run").read_bytes() == first
    assert {file.name for file in path.parent.iterdir()} == {
        "scenario.toml",
        "plan.json",
        "rounds.jsonl",
        "report.html",
    }


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = read(a_run(tmp_path, [a_record(1)]))
    assert page.startswith(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" />'
        '<meta http-equiv="Content-Security-Policy"'
    )
    assert (
        'content="default-src &#x27;none&#x27;; '
        "style-src &#x27;unsafe-inline&#x27;; img-src data:;" in page
    )
    assert not re.search(r"https?:|<script|url\(|@import|\son\w+=", page)
    assert re.findall(r'(?:href|src)="([^"]*)"', page) == ["data:,"]
    assert "<title>alexnet32 with SFL on 3 devices · Airsplit</title>" in page


def test_every_chart_has_a_text_for_screen_readers(tmp_path: Path) -> None:
    page = read(a_run(tmp_path, [a_record(n) for n in (1, 2, 3)]))
    alts = re.findall(r'role="img" aria-label="([^"]*)"', page)
    assert len(alts) == 4
    assert alts[0].startswith(
        "Accuracy over rounds. mean of the devices&#x27; models: 10 % in round 1, 30 % in round 3."
    )
    assert page.count("<figcaption>") == 6
    assert page.count("<details>") >= 3
    assert len(re.findall(r"<svg (?![^>]*(role=\"img\"|aria-hidden))", page)) == 0


def test_names_from_users_are_only_text(tmp_path: Path) -> None:
    bad = '<script>alert("1")</script>'
    names = {
        "device_names": [bad, "$x_1$ & co\x00", "\ud800 ‮"],
        "split_names": ["<b>", "</table>", "</table>"],
        "status": bad,
        "method": "<i>",
    }
    run = a_run(
        tmp_path,
        [a_record(1)],
        a_scenario(model__name=bad, model__arguments={bad: bad}),
        a_plan(3, **names),
    )
    page = read(run)
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;" in page
    assert "$x_1$ &amp; co�" in page


def test_the_page_declares_the_colors_of_the_palette_for_light_and_dark() -> None:
    css = read_style_sheet()
    for colors in (palette.LIGHT, palette.DARK):
        for name, color in colors.items():
            assert f"--{name}: {color};" in css
    for name in ("BLUE", "ORANGE", "GREEN", "RED", "INK"):
        assert f"--{name.lower()}: {getattr(palette, name)};" in css
    assert f"--blue: {palette.SKY};" in css  # on a dark screen


def test_the_style_sheet_uses_only_colors_that_the_palette_declares() -> None:
    css = read_style_sheet()
    assert palette.LIGHT.keys() == palette.DARK.keys()
    assert set(palette.ROLES.values()) <= palette.LIGHT.keys()
    used = set(re.findall(r"var\(--([\w-]+)\)", css))
    assert used <= palette.LIGHT.keys() | palette.ROLES.keys()
    rules = css.partition("/* A report")[2]
    assert rules
    assert not re.search(r"#[0-9a-fA-F]{3,6}\b", rules)


def test_neither_torch_nor_matplotlib_is_loaded(tmp_path: Path) -> None:
    a_run(tmp_path, [a_record(1)])
    code = "import sys; from airsplit.report.page import write_report; write_report(sys.argv[1])"
    code += "; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False False"


def test_the_result_is_one_sentence_of_accuracy_time_bytes_and_energy(tmp_path: Path) -> None:
    scenario = a_scenario(fleet__joules_per_mac=1e-9)
    text = words(read(a_run(tmp_path, [a_record(n) for n in (1, 2, 3, 4)], scenario)))
    text = text.replace("&#x27;", "'")
    assert (
        "After 4 rounds and 16.0 s of virtual time, "
        "the devices' models reach 40.0 % test accuracy on average " in text
    )
    assert "(standard deviation 2.0 points, worst 5.0 %)" in text
    assert (
        "used 6.00 J, sent 12.0 kB and received 6.00 kB; "
        "receiving takes no time in this simulation." in text
    )
    assert "Sent 12.0 kB" in text


@pytest.mark.parametrize(("partition", "is_shown"), [("iid", False), ("dirichlet", True)])
def test_accuracy_on_own_classes_is_shown_if_devices_have_different_classes(
    tmp_path: Path, partition: str, is_shown: bool
) -> None:
    own = {"own_accuracy": 0.75, "own_accuracy_worst": 0.5}
    scenario = a_scenario(training__partition=partition)
    text = words(read(a_run(tmp_path, [a_record(1, **own)], scenario)))
    sentence = ", and 75.0 % weighted by each device&#x27;s own classes (worst 50.0 %)"
    assert (sentence in text) is is_shown


@pytest.mark.parametrize(("probability", "is_shown"), [(0.0, False), (0.25, True)])
def test_the_dropout_probability_is_shown_if_there_is_one(
    tmp_path: Path, probability: float, is_shown: bool
) -> None:
    text = words(
        read(a_run(tmp_path, [a_record(1)], a_scenario(training__dropout_probability=probability)))
    )
    assert ("drops out with a probability of" in text) is is_shown


def test_lines_of_a_chart_end_inside_it(tmp_path: Path) -> None:
    page = read(a_run(tmp_path, [a_record(n) for n in (1, 2, 3, 4)]))
    charts = re.findall(r'<svg [^>]*viewBox="0 0 (\d+) (.*?)</svg>', page, flags=re.DOTALL)
    ends = [
        (float(x), float(width))
        for width, inside in charts
        for x in re.findall(r' x[12]="([^"]*)"', inside)
    ]
    assert len(ends) > 10
    assert all(0 <= x <= width for x, width in ends)


def test_received_data_take_time_if_the_clock_counts_the_downlink(tmp_path: Path) -> None:
    text = words(read(a_run(tmp_path, [a_record(1)], a_scenario(clock__downlink=True))))
    assert "sent 3.00 kB and received 1.50 kB." in text
    assert "takes no time" not in text


def test_a_run_over_a_network_names_its_times_as_measured(tmp_path: Path) -> None:
    text = words(read(a_run(tmp_path, [a_record(1)], plan=a_plan() | {"networked": True})))
    assert "s of training time" in text
    assert "over a network; planned with measurements of themselves and of their links" in text
    assert "Times were measured in training over the network" in text
    assert "irtual" not in text.replace("virtual_time", "")
    assert "Energy" not in text
    assert "MHz" not in text


def test_energy_is_shown_only_if_it_includes_computing(tmp_path: Path) -> None:
    without = words(read(a_run(tmp_path / "a", [a_record(1)]))).replace("&#x27;", "'")
    assert " J" not in without
    reason = "computing would be missing from it; set fleet.joules_per_mac, or"
    assert f"Energy is left out because {reason}" in without
    drawn = words(
        read(a_run(tmp_path / "b", [a_record(1)], a_scenario(fleet__joules_per_mac=1e-9)))
    )
    of_a_file = words(
        read(a_run(tmp_path / "c", [a_record(1)], plan=a_plan(energy_includes_computing=True)))
    )
    for text in (drawn, of_a_file):
        assert "used 1.50 J" in text
        assert "Energy 1.50 J of all devices" in text.replace("&#x27;", "'")
        assert "left out" not in text


def test_the_scenario_is_on_the_page_as_text_and_in_words(tmp_path: Path) -> None:
    scenario = a_scenario(
        training__partition="shards",
        training__momentum=0.9,
        training__dropout_probability=0.25,
        fleet__seed=7,
    )
    page = read(a_run(tmp_path, [a_record(1)], scenario))
    assert scenario.to_toml().replace('"', "&quot;") in page
    text = words(page)
    for fact in (
        "alexnet32 (width = 0.25, channels = 1)",
        "digits , shards: 2 labels per device",
        "4 rounds of 5 iterations, batches of 32",
        "SGD with learning rate 0.05, momentum 0.9",
        "training 0, fleet 7, plan 0",
        "drops out with a probability of 25.0 %",
    ):
        assert fact in text


def test_the_bound_of_the_plan_is_rounded_up(tmp_path: Path) -> None:
    text = words(read(a_run(tmp_path, [a_record(1)], plan=a_plan(3, gap=0.000301))))
    assert (
        "The plan takes at most 0.031 % longer than the best possible plan (largest mean)." in text
    )
    assert (
        "The bound holds against any splits and fixed shares within the limits; exact search."
        in text
    )
    assert "0 pool1 33.33 % 0.125 s 0.250 s 0.375 s" in text
    assert "SFL averages 1,234 parameters: those after pool2, the deepest split." in text


def test_time_is_summed_over_rounds_and_the_rest_is_absence(tmp_path: Path) -> None:
    present, absent = (1.0, 1.0, 0.0), (0, 1)
    record = a_record(
        2, compute_s=present, transmit_s=(2.0, 2.0, 0.0), idle_s=present, participants=absent
    )
    page = read(a_run(tmp_path, [a_record(1), record]))
    text = words(page)
    assert (
        "devices spent 25 % computing, 50 % on the air and 25 % waiting for the slowest one."
        in text
    )
    assert "not taking part" in text
    assert "On average, 2.5 of 3 devices were selected for a round, and none dropped out." in text
    # On the air, for the two devices that always took part.
    assert page.count('x="250" y="0" width="500"') == 2
    assert page.count('x="125" y="0" width="250"') == 1


def test_dropouts_and_rounds_that_no_device_finished_are_shown(tmp_path: Path) -> None:
    text = words(
        read(a_run(tmp_path, [a_record(1, dropped=(0, 1, 2), train_loss=None), a_record(2)]))
    )
    assert (
        "On average, 3 of 3 devices were selected for a round and 1.5 finished it. "
        "Dropouts: 3, 50.0 % of those selected. In 1 round no device finished." in text
    )
    assert "Each device device rounds selected finished dropped out 0 2 1 1" in text


def test_waiting_is_the_same_quantity_in_tile_sentence_bars_and_plan(tmp_path: Path) -> None:
    away = {"compute_s": (0.0, 1.0, 1.0), "transmit_s": (0.0, 2.0, 2.0), "idle_s": (0.0, 1.0, 1.0)}
    page = read(a_run(tmp_path, [a_record(1), a_record(2, participants=(1, 2), **away)]))
    text = words(page)
    assert "Waiting 25 % of the devices' time" in text.replace("&#x27;", "'")
    assert "25 % waiting for the slowest one" in text
    # Device 0, too: 25 % of the time in which it takes part.
    assert page.count('<span class="number">25 %</span>') == 3
    # Of 0.5 s they are busy for 0.375 s.
    assert "the plan expects devices to wait 25 % of their time for the slowest one." in text


def test_the_mean_of_a_device_is_over_the_rounds_that_it_finished(
    tmp_path: Path,
) -> None:
    times = dict.fromkeys(("compute_s", "transmit_s", "idle_s"), (0.0, 1.0, 1.0))
    records = [a_record(1, dropped=(0,), **times), a_record(2)]
    text = words(read(a_run(tmp_path, records, plan=a_plan(networked=True))))
    assert "0 planned 1.88 s measured 3.00 s" in text


def test_new_plans_are_shown_and_unnamed_splits_have_their_number(
    tmp_path: Path,
) -> None:
    again = a_record(3, splits=(8, 8, 5), shares=(0.5, 0.25, 0.25))
    text = words(
        read(
            a_run(tmp_path, [a_record(1), a_record(2), again], a_scenario(training__replan_every=2))
        )
    )
    assert "The plan was updated 1 time, every 2 rounds." in text
    assert "3 2 devices pool2 25.00 % – 50.00 %" in text
    assert "0 pool1 → pool2" in text
    assert "2 pool2 → split 5" in text
    assert "The plan of round 1" in text


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_page_that_describes_it(tmp_path: Path, algorithm: str) -> None:
    scenario = a_scenario(training__algorithm=algorithm)
    text = words(read(a_run(tmp_path, [a_record(1)], scenario)))
    assert re.search("(SFL|FedAvg|split learning|SplitFed V[12]): ", text)
    assert (
        ("so this plan was not used" in text)
        == (algorithm == "fedavg")
        == ("0 whole model" in text)
    )
    assert ("its shares and times were not used" in text) == (algorithm == "split-learning")
    assert ("the plan expects devices to wait" in text) == (
        algorithm not in ("fedavg", "split-learning")
    )


def test_a_run_without_a_finished_round_shows_its_plan(tmp_path: Path) -> None:
    text = words(read(a_run(tmp_path, [])))
    assert "None of 4 rounds is finished yet." in text
    assert "The plan Method exact" in text
    assert "Learning curves" not in text


@pytest.mark.parametrize("devices", [1, 2])
def test_one_round_is_enough(tmp_path: Path, devices: int) -> None:
    equal = a_record(1, devices, test_accuracy_spread=0.0, test_accuracy_worst=0.1)
    page = read(a_run(tmp_path, [equal], devices=devices))
    assert ("the model reaches 10.0 %" in words(page)) == (devices == 1)
    assert "worst model" not in page
    assert "1 of 4 rounds" in page


def test_rounds_without_an_evaluation_are_left_out_of_the_lines(tmp_path: Path) -> None:
    untested = {
        "test_accuracy": None,
        "test_accuracy_spread": None,
        "test_accuracy_worst": None,
        "test_loss": None,
    }
    records = [a_record(1), a_record(2, **untested), a_record(3), a_record(4, **untested)]
    page = read(a_run(tmp_path, records))
    assert "accuracy when last evaluated, in round 3 on average" in words(page)
    accuracy = re.findall(r'<polyline points="([^"]*)" class="line blue"', page)[0]
    assert len(accuracy.split()) == 2
    assert "<td>–</td>" in page


def test_runs_without_evaluations_and_without_classes_have_pages(tmp_path: Path) -> None:
    no_accuracy = {"test_accuracy": None, "test_accuracy_spread": None, "test_accuracy_worst": None}
    regression = words(read(a_run(tmp_path / "a", [a_record(1, **no_accuracy)])))
    assert "models have a mean test loss of 2." in regression
    untested = words(
        read(a_run(tmp_path / "b", [a_record(1, **no_accuracy, test_loss=None, train_loss=-1.5)]))
    )
    assert "no model has been evaluated yet." in untested


def test_a_truncated_last_record_is_left_out(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [a_record(1), a_record(2)])
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(a_record(3).to_json()[:50])
    assert "After 2 of 4 rounds" in words(read(folder))


def test_a_long_run_of_many_devices_is_shown_in_part_and_says_so(tmp_path: Path) -> None:
    page = read(a_long_run(tmp_path, rounds=650, devices=210))
    text = words(page)
    assert len(page) < 400_000
    assert "Charts do not show all 650 rounds: of each group of neighbors" in text
    assert "of 650 rounds; rounds.jsonl has all" in text
    assert "The 40 of 210 devices that wait longest" in text
    assert "The plan of the first 200 devices; plan.json has all" in text
    assert "pool2 209 99.5 %" in text
    # One of them is the mean of all devices.
    assert page.count('class="bar"') == 41


def test_a_diverged_run_says_in_which_round(tmp_path: Path) -> None:
    folder = a_run(tmp_path, [a_record(1), a_record(2)])
    RunFolder(folder).write_divergence(Divergence(3, "the loss is not finite"))
    text = words(read(folder))
    assert (
        "2 of 4 rounds, diverged in round 3 The training diverged in round 3. "
        "the loss is not finite. After 2 of 4 rounds" in text
    )
    RunFolder(folder).write_records([])
    text = words(read(folder))
    assert (
        "The training diverged in round 3. the loss is not finite. None of 4 rounds is finished."
        in text
    )
    RunFolder(folder).clear_divergence()
    assert "diverged" not in words(read(folder))


@pytest.mark.parametrize("text", ["{", "[]", '{"round": 0, "why": ""}'])
def test_an_invalid_divergence_file_is_a_file_problem(tmp_path: Path, text: str) -> None:
    folder = a_run(tmp_path, [a_record(1)])
    (folder / "diverged.json").write_text(text)
    with pytest.raises(FileProblem, match=r"divergence of the run '.*diverged.json'"):
        write_report(folder)


def test_a_folder_without_a_run_is_a_file_problem(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"scenario of the run .*scenario.toml' does not exist"):
        write_report(tmp_path)
    (tmp_path / "scenario.toml").write_text(a_scenario().to_toml())
    with pytest.raises(FileProblem, match=r"plan of the run .*plan.json' does not exist"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("[]", r"must be a JSON object, got \[\]"),
        ("{", "is not JSON"),
        ({"gap": "small"}, "has no number 'gap'"),
        ({"shares": [0.5]}, "must have one of 'shares' for each device"),
        ({"splits": []}, "must have one of 'splits' for each device"),
        ({"compute_s": ["a", "b", "c"]}, "compute_s must be numbers"),
        ({"shares": [0.5, None, 0.5]}, "shares must be finite numbers"),
        ({"device_names": "abc"}, "must have one of 'device_names'"),
    ],
)
def test_an_invalid_plan_is_a_file_problem(tmp_path: Path, plan: object, complaint: str) -> None:
    a_run(tmp_path, [], plan=a_plan(3, **plan) if isinstance(plan, dict) else None)
    if isinstance(plan, str):
        (tmp_path / "plan.json").write_text(plan)
    with pytest.raises(FileProblem, match=complaint):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"compute_s": (1.0,)}, "round 1 has 1 compute_s, but the plan has 3 devices"),
        (
            {"participants": (3,)},
            "round 1 names a device that the plan with 3 devices does not have",
        ),
        ({"train_loss": "low"}, "train_loss must be a number"),
        ({"idle_s": ("a", "b", "c")}, "idle_s must be a number or an array of numbers"),
    ],
)
def test_records_that_do_not_fit_the_plan_are_a_file_problem(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    with pytest.raises(FileProblem, match=complaint):
        write_report(a_run(tmp_path, [a_record(1, **changes)]))


def test_an_invalid_scenario_is_a_file_problem(tmp_path: Path) -> None:
    a_run(tmp_path, [])
    (tmp_path / "scenario.toml").write_text("[modle]\n")
    with pytest.raises(
        FileProblem, match=r"scenario of the run .*scenario.toml': \[modle\] is not a setting"
    ):
        write_report(tmp_path)


def test_the_plan_is_drawn_as_cuts_shares_and_times(tmp_path: Path) -> None:
    page = read(
        a_run(
            tmp_path,
            [a_record(1)],
            plan=a_plan(all_split_names=[f"layer{n}" for n in range(1, 17)]),
        )
    )
    figure = page[page.index('class="plan"') :]
    # Cut after 4 of 16 layers.
    assert '<rect x="0" y="0" width="250" height="10" class="fill device-side" />' in figure
    assert "share, up to 33.3 %" in figure
    assert "time, up to 0.375 s" in figure


def test_measured_times_are_compared_with_planned_ones(tmp_path: Path) -> None:
    records = [a_record(n, latency_s=3.0) for n in (1, 2)]
    page = read(a_run(tmp_path / "networked", records, plan=a_plan(networked=True)))
    sentence = (
        "A round was planned to take 2.50 s on average. "
        "The median of 2 rounds is 3.00 s, 20 % more."
    )
    assert sentence in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "measured 3.00 s" in page
    assert "Planned and measured" not in read(a_run(tmp_path / "simulated", records))
    replanned = [records[0], a_record(2, splits=(4, 4, 4), shares=(0.3, 0.3, 0.4))]
    assert "Planned and measured" not in read(
        a_run(tmp_path / "replanned", replanned, plan=a_plan(networked=True))
    )


def test_the_machine_is_shown_if_it_is_known(tmp_path: Path) -> None:
    page = read(
        a_run(
            tmp_path,
            [a_record(1)],
            plan=a_plan(machine="a <fast> one, 2 cores", airsplit_version="0.1.0"),
        )
    )
    assert "a &lt;fast&gt; one, 2 cores" in page
    assert "trained with Airsplit 0.1.0" in page


ERROR = {"training__metric": "mine:mean_error", "training__metric_goal": "min"}


def test_the_users_own_metric_takes_the_place_of_accuracy(tmp_path: Path) -> None:
    records = [
        a_record(n, test_metric=8.0 / n, test_metric_spread=0.5, test_metric_worst=9.0 / n)
        for n in (1, 2)
    ]
    page = read(a_run(tmp_path, records, a_scenario(**ERROR)))
    text = words(page)
    assert (
        "mean_error on the test set is 4 on average over the models "
        "(standard deviation 0.5, worst 4.5)." in text
    )
    assert "mean_error 4 worst 4.5" in text
    assert "Metric mine:mean_error , lower is better" in text
    assert (
        "mean_error over rounds. mean of the devices&#x27; models: 8 in round 1, 4 in round 2. "
        "worst model: 9 in round 1" in page
    )
    assert re.search(r"<th[^>]*>mean_error</th>", page)


def test_models_with_equal_metrics_have_no_worst_one(tmp_path: Path) -> None:
    no_accuracy = dict.fromkeys(("test_accuracy", "test_accuracy_spread", "test_accuracy_worst"))
    records = [
        a_record(1, test_metric=0.25, test_metric_spread=0.0, test_metric_worst=0.25, **no_accuracy)
    ]
    text = words(read(a_run(tmp_path, records, a_scenario(training__metric="mine:dice"))))
    assert "dice on the test set is 0.25 on average over the models." in text
    assert "dice 0.25 the same for all models" in text


def test_without_an_own_metric_none_is_named(tmp_path: Path) -> None:
    assert "Metric" not in words(read(a_run(tmp_path, [a_record(1)])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean_latency_s": 0}, "mean_latency_s must be a finite number > 0, got 0"),
        ({"mean_latency_s": False}, "has no number 'mean_latency_s'"),
        ({"gap": 1e308}, "gap must be a finite number > 0, got 1e\\+308"),
        ({"gap": -0.9}, "gap must be a finite number > 0, got -0.9"),
    ],
)
def test_an_impossible_plan_is_rejected(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = a_run(tmp_path, [a_record(1)], plan=a_plan(3, **changes))
    with pytest.raises(FileProblem, match=message):
        write_report(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"splits": ()},
        {"virtual_time_s": -1.0},
        {"sent_bytes": (1e308,) * 3},
        {"macs": (1e308,) * 3},
    ],
)
def test_an_impossible_record_is_rejected(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = a_run(tmp_path, [a_record(1), a_record(2, **changes)])
    with pytest.raises(FileProblem):
        write_report(folder)
