"""Owns the process: signals, and the exit code of whatever ends it."""

import sys
import traceback

from graphcheck.cli.app import app
from graphcheck.harness.running.interrupt import Interrupted, raise_on_signals
from graphcheck.schema.errors import GraphcheckError
from graphcheck.schema.exit_codes import ExitCode


def main() -> None:
    """Runs the command line and exits.

    A command ends by its own exit code, wrong usage of an option by 2, an error of the tree by its code after one
    line; everything uncaught is internal, and alone shows a traceback.
    """
    raise_on_signals()
    try:
        app(prog_name="graphcheck")
    except GraphcheckError as error:
        print(f"graphcheck: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Interrupted as interrupt:
        sys.exit(interrupt.exit_code)
    except Exception:
        traceback.print_exc()
        sys.exit(ExitCode.INTERNAL)


if __name__ == "__main__":
    main()
