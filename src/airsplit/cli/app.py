"""The entry point: all commands, and the exit code and message of every failure."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from airsplit.cli.dashboard_command import dashboard
from airsplit.cli.doctor import doctor
from airsplit.cli.identity_commands import identity_app
from airsplit.cli.network_commands import join, probe, serve, status
from airsplit.cli.output import USER_MISTAKE, note
from airsplit.cli.planning_commands import clock, plan, presets, profile
from airsplit.cli.report_commands import figures, report
from airsplit.cli.signals import INTERRUPTED, interruptible
from airsplit.cli.torchrun import find_local_rank, linger
from airsplit.cli.training_commands import compare, data, export, run
from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.core.plugins import error_line, locate_in_user_code

# Exit codes; that of a closed pipe is 128 + SIGPIPE, as shells report it.
UNEXPECTED = 1
PIPE_CLOSED = 141

TRACEBACK = "--traceback"

# Plain text, so that help and errors read the same in a log and need no rich at start-up.
app = typer.Typer(
    name="airsplit", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


class NotDistributed(InvalidValue):
    """torchrun has started several processes of a command that runs in one."""


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from airsplit.runs.provenance import VERSION

        print(f"airsplit {VERSION}")
        raise typer.Exit


# In the docstring of a command, "\b" keeps the line breaks of the paragraph below it.
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
        bool,
        typer.Option(TRACEBACK, help="Show the traceback of an error; allowed anywhere."),
    ] = False,
) -> None:
    """Cut a neural network for many wireless devices, and divide the band among them.

    \b
    Start here:
      airsplit presets                   list the bundled scenarios
      airsplit plan paper-alexnet        splits, shares, latencies, and a bound
      airsplit clock paper-alexnet       how long rounds take, and who is slow
      airsplit profile alexnet           what each layer computes and sends
      airsplit run demo                  train in virtual time
      airsplit serve demo --devices 2    train with two real devices
      airsplit join 127.0.0.1:7070       be one of them
      airsplit doctor                    check this installation

    \b
    Your own scenario:
      airsplit presets demo > my.toml    then edit my.toml
      airsplit plan my.toml
      airsplit run my.toml
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
    elif context.invoked_subcommand != "run" and find_local_rank() is not None:
        raise NotDistributed(
            f"airsplit {context.invoked_subcommand} cannot share its work among processes, only "
            "airsplit run can; start this one without torchrun"
        )


# In the order of `airsplit --help`.
COMMANDS = (
    profile,
    plan,
    clock,
    run,
    compare,
    export,
    data,
    presets,
    report,
    figures,
    dashboard,
    serve,
    join,
    probe,
    status,
    doctor,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(identity_app, name="identity")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    A user's mistake is one line on stderr and exit code 2; SIGINT is 130, SIGTERM 143.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    # Anywhere on the line, as people append it to the command that has just failed.
    wants_traceback = TRACEBACK in words
    words = [word for word in words if word != TRACEBACK]

    with warnings.catch_warnings(), interruptible() as interruption:
        # "default" shows a warning once per place, whatever filters were set before.
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: note(f"note: {message}")
        try:
            # A stdout that cannot encode a letter gets a question mark instead of an error.
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")
            code = typer.main.get_command(app).main(
                args=words, prog_name="airsplit", standalone_mode=False
            )
            sys.stdout.flush()
        except (AirsplitError, typer.TyperException) as error:
            is_common = isinstance(error, typer.TyperException | NotDistributed)
            if is_common and find_local_rank():
                # All of torchrun's processes have this error; the first one reports it.
                linger()
            else:
                _report(error, _describe_mistake(error), wants_traceback)
            return USER_MISTAKE
        except KeyboardInterrupt:
            code = INTERRUPTED
        except (BrokenPipeError, SystemExit):
            # The reader of stdout is gone, as `head` is after ten lines; typer then raises
            # SystemExit. Python flushes stdout once more at exit, which must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_CLOSED
        except Exception as error:
            place = locate_in_user_code(error)
            if not place:
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{last.filename}:{last.lineno}"
            text = f"unexpected {error_line(error)} ({place}); please report it as a bug"
            _report(error, text, wants_traceback)
            return UNEXPECTED

    # typer returns this code for every KeyboardInterrupt, also for that of SIGTERM.
    if code == INTERRUPTED:
        return interruption.exit_code
    # A command returns nothing; typer passes on the code of typer.Exit.
    return code if isinstance(code, int) else 0


def _report(error: BaseException, text: str, wants_traceback: bool) -> None:
    """Print an error in one line, after its traceback if that is wanted."""
    if wants_traceback:
        print("".join(traceback.format_exception(error)), end="", file=sys.stderr)
        note(text)
        return
    # An error without a cause is a mistake on the command line: its traceback is of no use.
    is_mistake = isinstance(error, AirsplitError | typer.TyperException)
    if not is_mistake or error.__cause__ is not None:
        text += f"; add {TRACEBACK} to see the traceback"
    note(text)


def _describe_mistake(error: AirsplitError | typer.TyperException) -> str:
    """Return an error's message; for a wrong command line, with where to read about it."""
    if isinstance(error, AirsplitError):
        return str(error)
    context = getattr(error, "ctx", None)
    command = "airsplit" if context is None else context.command_path
    return f"{error.format_message().rstrip('.')} (see {command} --help)"


if __name__ == "__main__":
    sys.exit(main())
