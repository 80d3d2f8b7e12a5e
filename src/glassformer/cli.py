"""The command line: a verb, what it works on, and `--set path=value` for everything else.

Exit status 0: success; 1: a check failed; 2: a mistake in what was asked, printed as one line with the way out; 128 +
the number of the signal that ended it.
"""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError, UnusedCliTokensError

from . import __version__
from .errors import GlassformerError, InputError
from .terminal.options import asked_language, language_last
from .terminal.output import HUNG_UP, complain, console, discard_output, help_formatter, hung_up, spoken
from .verbs import VERBS

app = App(
    name="glassformer",
    version=__version__,
    help="See how a neural network computes context, with the real numbers of a real run.",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
EXAMPLE = "glassformer trace '고양이가 생선을 먹었다' --token 먹었다"
for verb in VERBS:
    app.command(verb, help_epilogue="")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    try:
        return _told(arguments)
    except OSError as error:  # a terminal that is gone, or not even the mistake could be told
        status = HUNG_UP if hung_up(error) else 2
        discard_output(sys.stdout, sys.stderr)
        return status


def _told(arguments: list[str] | None) -> int:
    """The same, every mistake told."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 shows \\u2588, not a traceback
    arguments = sys.argv[1:] if arguments is None else arguments
    spoken.lang = asked_language(arguments)
    app.help_formatter = help_formatter(spoken.lang)
    app.help_epilogue = f"{'예' if spoken.lang == 'ko' else 'Example'}:  {EXAMPLE}"
    try:
        ask = {"exit_on_error": False, "print_error": False, "result_action": "return_value"}
        status = app(language_last(arguments), console=console(), **ask)
        sys.stdout.flush()
        return status or 0
    except GlassformerError as error:
        return complain(error)
    except UnusedCliTokensError as error:
        rest, verb = " ".join(error.unused_tokens or ()), (error.command_chain or ("",))[-1]
        way_out = (
            "put a text of several words in quotes"
            if verb in ("explore", "trace", "generate")
            else "give one at a time"
        )
        return complain(InputError(f"not expected here: {rest}; {way_out}"))
    except CycloptsError as error:
        command = ("glassformer", *(error.command_chain or ()))
        return complain(error, f"(see {' '.join(command)} --help)")
    except KeyboardInterrupt as stopped:
        return getattr(stopped, "status", 130)
    except BrokenPipeError:  # the reader of a pipe has left, as in `| head`
        discard_output()
        return 0
    except OSError as error:
        if hung_up(error):
            raise
        reason = error.strerror or str(error)
        if error.filename is None:  # not a file that somebody named: the output itself, as on a full disk
            discard_output()
            return complain(OSError(f"the output cannot be written ({reason}); send it to another place"))
        return complain(OSError(f"{error.filename}: {reason}; check the path and its permissions"))
