"""Signals interrupt a command, whatever it inherits, and nothing of that stays behind."""

from __future__ import annotations

import signal
import threading

import pytest

from airsplit.cli.signals import interruptible

ASKED = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.usefixtures("ignored_signals")
@pytest.mark.parametrize(("asked", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_ignored_signal_interrupts_and_is_ignored_again_afterwards(
    asked: signal.Signals, exit_code: int
) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible() as interruption:
        signal.raise_signal(asked)

    assert interruption.exit_code == exit_code
    assert [signal.getsignal(number) for number in ASKED] == [signal.SIG_IGN] * 2


@pytest.mark.usefixtures("ignored_signals")
def test_sigterm_ends_a_process_of_torchrun_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_command_in_another_thread_leaves_signals_alone() -> None:
    before = [signal.getsignal(number) for number in ASKED]
    inside = []

    def command() -> None:
        with interruptible():
            inside.extend(signal.getsignal(number) for number in ASKED)

    thread = threading.Thread(target=command)
    thread.start()
    thread.join()

    assert inside == before
