"""The command line: what all commands share, and who is told what when one goes wrong.

Each command parses, calls the library, renders: results on stdout, progress and notes on stderr.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from airsplit.cli import network_commands, planning_commands, showing_commands, training_commands
from airsplit.cli.dashboard_command import dashboard
from airsplit.cli.doctor_command import doctor
from airsplit.cli.identity_commands import identity_app
from airsplit.cli.output import USER_MISTAKE, note
from airsplit.cli.signals import INTERRUPTED, interruptible
from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.core.plugins import error_line, locate_in_user_code

UNEXPECTED, PIPE_CLOSED = 1, 141
TRACEBACK = "--traceback"

app = typer.Typer(
    name="airsplit", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


class NotShared(InvalidValue):
    """A command that torchrun was asked to start several times."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from airsplit.runs.provenance import VERSION

        print(f"airsplit {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    _traceback: Annotated[
        bool, typer.Option(TRACEBACK, help="Show the Python traceback of an error; goes anywhere.")
    ] = False,
) -> None:
    """Where to cut a neural network for each of many wireless devices, and how to share the radio.

    \b
    Start here:
      airsplit presets                   the scenarios that come with airsplit
      airsplit plan paper-alexnet        splits, shares, latencies, and a bound
      airsplit clock paper-alexnet       how long rounds take, and who is waited for
      airsplit profile alexnet           what each layer computes and sends
      airsplit run demo                  train it in virtual time
      airsplit serve demo --devices 2    train it with real devices, each of
      airsplit join HOST:PORT            which joins
      airsplit doctor                    what works on this machine

    \b
    Your own scenario:
      airsplit presets demo > my.toml    edit it, then
      airsplit plan my.toml
      airsplit run my.toml
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
    elif context.invoked_subcommand != "run" and _one_of_several() is not None:
        way = "airsplit run does; start this one without torchrun"
        raise NotShared(
            f"airsplit {context.invoked_subcommand} does not share its work among processes, only {way}"
        )


def _one_of_several() -> int | None:
    """Which of the processes on this machine it is, where torchrun has started several together; None where it is alone."""
    if "RANK" not in os.environ:
        return None  # without a look at torch, which takes seconds to load
    from airsplit.training.ranks import ranks_of

    ranks = ranks_of()
    return ranks.local if ranks.size > 1 else None


for commands in (planning_commands, training_commands, showing_commands):
    for command in commands.COMMANDS:
        app.command()(command)
for command in (dashboard, *network_commands.COMMANDS, doctor):
    app.command()(command)
app.add_typer(identity_app, name="identity")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code.  A user's mistake is one line on stderr and 2; SIGINT is 130, SIGTERM 143."""
    words = list(sys.argv[1:] if argv is None else argv)
    # anywhere on the line, since a person adds it to the end of the command that failed
    wants_traceback = TRACEBACK in words
    words = [word for word in words if word != TRACEBACK]
    with warnings.catch_warnings(), interruptible() as interruption:
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: note(f"note: {message}")
        try:
            _forgive_encoding()
            code = typer.main.get_command(app).main(
                args=words, prog_name="airsplit", standalone_mode=False
            )
            sys.stdout.flush()
        except (AirsplitError, typer.TyperException) as error:
            if (
                isinstance(error, typer.TyperException | NotShared) and _one_of_several()
            ):  # the first one here says the same
                from airsplit.cli.progress import linger

                linger()
            else:
                _print_error(
                    error,
                    _usage(error) if isinstance(error, typer.TyperException) else str(error),
                    wants_traceback,
                )
            return USER_MISTAKE
        except KeyboardInterrupt:
            code = INTERRUPTED
        except (
            BrokenPipeError,
            SystemExit,
        ):  # typer exits by itself when a pipe closes, and only then
            return _pipe_closed()
        except Exception as error:
            place = locate_in_user_code(error) or "{0.filename}:{0.lineno}".format(
                traceback.extract_tb(error.__traceback__)[-1]
            )
            _print_error(
                error,
                f"unexpected {error_line(error)} ({place}); please report it as a bug",
                wants_traceback,
            )
            return UNEXPECTED
    if code == INTERRUPTED:  # typer's for every KeyboardInterrupt
        return interruption.exit_code
    return code if isinstance(code, int) else 0


def _print_error(error: BaseException, text: str, wants_traceback: bool) -> None:
    """Print what went wrong in one line, behind its traceback if that is wanted."""
    is_ours = isinstance(error, AirsplitError | typer.TyperException) and error.__cause__ is None
    if wants_traceback:
        print("".join(traceback.format_exception(error)), end="", file=sys.stderr)
    note(text if is_ours or wants_traceback else f"{text}; add {TRACEBACK} to see the traceback")


def _usage(error: typer.TyperException) -> str:
    """What was wrong with the words on the command line, and where to read about them."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "airsplit"
    return f"{error.format_message().rstrip('.')} (see {command} --help)"


def _forgive_encoding() -> None:
    """Where stdout cannot show a letter, a question mark is better than no answer."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _pipe_closed() -> int:
    """The reader went away, as `head` does: end quietly, also when Python flushes on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


if __name__ == "__main__":
    sys.exit(main())
