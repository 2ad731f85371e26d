"""Owns making a file of signatures from an ablation's run folder.

    python -m graphcheck.harness.records.record_signatures RUN

It is written into the package, named after the matrix; its figures are those of the run, none is chosen.
"""

import argparse
from pathlib import Path

from graphcheck import shipped
from graphcheck.harness.judging.findings import ablation_exit_code
from graphcheck.harness.judging.signatures import signature_of
from graphcheck.harness.records.run_folder import Run, load_run
from graphcheck.schema.errors import GraphcheckError, UsageError
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.signatures import CellSignature, Signatures

_VERSIONS_OF = ("torch", "torch_cuda", "nvidia_devices")


def signatures_of(run: Run) -> Signatures:
    """What each fix's absence looked like, in its first bare trial.

    Raises:
        UsageError: the run is no ablation, or one that proved not every fix.
    """
    ablation = run.info.ablation
    if ablation is None or ablation_exit_code(run.info, run.attempts) is not ExitCode.PASS:
        raise UsageError(f"run {run.path}", "not an ablation that proved every fix", "give one that did")
    fixes: dict[str, dict[str, CellSignature]] = {fix.name: {} for fix in ablation.fixes}
    for attempt in run.attempts:
        off, finished = attempt.started.attempt.fixes_off, attempt.finished
        is_first = attempt.started.attempt.repeat == 0 and not attempt.started.attempt.delays
        if off and is_first and finished is not None and not finished.verdict.is_green:
            fixes[off[0]][attempt.started.attempt.cell.name] = signature_of(finished)
    return Signatures(
        matrix=run.info.matrix_name,
        target=run.info.matrix.target,
        goldens=run.info.goldens,
        cells=tuple(dict.fromkeys(attempt.started.attempt.cell.name for attempt in run.attempts)),
        fixes=fixes,
        environment={name: run.info.environment[name] for name in _VERSIONS_OF},
        made=run.info.started[:10],
        command=f"graphcheck ablate {run.info.matrix_name}",
    )


def main() -> None:
    """Writes the file and says where it is; what cannot be recorded is one line and its exit code."""
    parser = argparse.ArgumentParser(description="Writes the file of signatures that a proven ablation makes.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of an ablation that proved every fix")
    try:
        signatures = signatures_of(load_run(parser.parse_args().run))
    except GraphcheckError as error:
        parser.exit(int(error.exit_code), f"{parser.prog}: {error}\n")
    path = shipped.signatures_dir() / f"{signatures.matrix}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(signatures.model_dump_json(indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
