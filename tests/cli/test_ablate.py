"""`graphcheck ablate` on the bundled engine: findings, the hang's story, nothing left behind; and what goes where."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphcheck.harness.judging.findings import find
from graphcheck.harness.judging.story import DIVERGED
from graphcheck.harness.planning.request import RunRequest
from graphcheck.harness.records.rejudge import rejudged
from graphcheck.harness.records.run_folder import load_run
from graphcheck.harness.running.ablate import AblateRequest, ablate
from graphcheck.harness.running.execute import Surroundings
from graphcheck.schema.ablation import Finding
from graphcheck.schema.capabilities import Capabilities, Signature
from graphcheck.schema.evidence import AuditFinding
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.bundled.target import BundledTarget
from tests.cli.conftest import Program
from tests.cli.program import ENVIRONMENT, Done, finish, start
from tests.fake_world import FakeWorld
from tests.in_process import make_call

ONE_CELL = "tp=1 and graph=on"


def findings(done: Done) -> dict[str, Finding]:
    return {finding.fix: finding.finding for finding in find(done.run.info, done.run.attempts)}


def audits(done: Done, key: str) -> list[AuditFinding]:
    """What every rank's audit found in an attempt."""
    (finished,) = [attempt.finished for attempt in done.run.attempts if attempt.started.key == key]
    assert finished is not None
    assert all(evidence.audit is not None for evidence in finished.facts.evidence.values())
    return [finding for evidence in finished.facts.evidence.values() for finding in evidence.audit or ()]


def test_what_froze_at_capture_and_what_was_not_refreshed_are_told_apart_by_the_audit(program: Program) -> None:
    fixes = ("device-metadata", "metadata-refresh")
    # One bucket, because an audited capture takes its time.
    arguments = [*(f"--fix={fix}" for fix in fixes), "--audit", "-k", ONE_CELL, "--set", "buckets=8"]
    done = program("ablate", *arguments)
    assert done.code == 0, done.output
    assert findings(done) == dict.fromkeys(fixes, Finding.NECESSARY)
    frozen = audits(done, "tp1-graph_on.no-device-metadata")
    assert {finding.clause for finding in frozen} == {"residency"}, "no buffer is stale"
    assert all(finding.detail.startswith("FROZEN") for finding in frozen)
    stale = audits(done, "tp1-graph_on.no-metadata-refresh")
    assert {"positions", "seq_lens", "slot_mapping", "block_tables"} == {finding.buffer for finding in stale}
    assert {finding.clause for finding in stale} <= {"contents", "tail"}, "twin capture is clean"
    assert audits(done, "tp1-graph_on") == audits(done, "tp1-graph_on.r1") == []
    assert "\n  audit: residency of aten." in done.output
    assert "\n  audit: contents of positions, seq_lens, slot_mapping, block_tables; first: lane 0 holds " in done.output


def processes_of(marker: str) -> list[int]:
    """Ids of the processes whose environment, as it was when they were started, holds `marker`."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found


def test_the_hang_is_necessary_is_told_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = f"{tmp_path}/marker"
    monkeypatch.setitem(ENVIRONMENT, "GRAPHCHECK_TEST", marker)
    process = start(tmp_path, "ablate", "--fix", "allreduce-sync", "-k", "tp=2", "--expect", "HANG")
    assert process.pid in processes_of(marker)
    done = finish(process, tmp_path)
    assert done.code == 0, done.output
    assert processes_of(marker) == []
    assert not list(Path("/dev/shm").glob("*graphcheck*"))
    assert findings(done) == {"allreduce-sync": Finding.NECESSARY}
    told = ["ranks first disagreed at engine step", "their batches parted", DIVERGED, "does not match"]
    places = [done.output.index(words) for words in [*told, "rank 0: ", "rank 1: "]]
    assert places[:4] == sorted(places[:4])
    hangs = [a for a in done.run.attempts if a.finished is not None and a.finished.verdict is Verdict.HANG]
    assert len(hangs) == 2, "graph off is switched off too, so that the locus is not claimed from graph on alone"
    for hang in hangs:
        assert hang.finished is not None
        assert hang.finished.story is not None
        stall = hang.finished.facts.stall
        assert (hang.finished.story.cause, len(stall.stacks)) == (DIVERGED, 2)
        assert stall.stalled_seconds <= stall.limit_seconds + 1.0
        # The suite's stop rule makes ranks that disagree part within a few steps.
        assert stall.step <= 20
    again = {attempt.started.key: rejudged(done.run, attempt).verdict for attempt in done.run.every}
    assert again == {a.started.key: a.finished.verdict for a in done.run.attempts if a.finished is not None}


def test_a_fix_that_cannot_act_in_the_selected_cells_says_so(program: Program) -> None:
    done = program("ablate", "--fix", "metadata-refresh", "-k", "tp=1 and graph=off")
    assert done.code == 7, done.output
    assert (
        "metadata-refresh  CANNOT ACT HERE: it acts only where graph is on: in none of 1 selected cells" in done.output
    )
    assert done.last_lines[1].startswith("exit 7: a fix is not proven; next: ")


class Mislabelled(BundledTarget):
    """The bundled engine with other signatures than its own."""

    def __init__(self, signatures: Mapping[str, Signature]) -> None:
        self._signatures = signatures

    def describe(self) -> Capabilities:
        truth = super().describe()
        fixes = (truth.fix(name).model_copy(update={"signature": other}) for name, other in self._signatures.items())
        return truth.model_copy(update={"fixes": tuple(fixes)})


@pytest.mark.usefixtures("warm_server")
def test_wrong_signature_unreached_and_without_effect_on_the_real_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    on = {"graph": ("on",)}
    target = Mislabelled(
        {
            "metadata-refresh": Signature(where=on, phase="decode", shows={"tape": (Verdict.HANG,)}),
            # At TP 1 there is no collective to wait for.
            "allreduce-sync": Signature(where={"tp": (1,)}, shows={"tape": (Verdict.HANG,)}),
            # With one lane and a bucket of two, the spare one never held anything but its fill.
            "pad-clear": Signature(where=on, phase="decode", shows={"tape": (Verdict.TOKENS,)}),
        }
    )
    request = RunRequest(select=ONE_CELL, lanes=1, settings=("buckets=2",))
    result = ablate(AblateRequest(request), surroundings=Surroundings(lambda name: target))
    assert result.exit_code is ExitCode.UNPROVEN
    run = load_run(result.path)
    wrong, unreached, idle = find(run.info, run.attempts)
    assert (wrong.fix, wrong.finding) == ("metadata-refresh", Finding.OTHER_SIGNATURE)
    assert wrong.reason == "expected HANG in decode, and came TOKENS in decode x 1"
    assert (unreached.fix, unreached.finding) == ("allreduce-sync", Finding.NEVER_REACHED)
    assert unreached.reason == "reached: prepare 0, capture 0, replay 0, eager 0"
    assert (idle.fix, idle.finding) == ("pad-clear", Finding.REDUNDANT)
    assert idle.effects[0].reached is not None
    assert idle.effects[0].reached["prepare"] > 0


def test_the_block_goes_to_standard_output_and_everything_else_beside_it(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = make_call(monkeypatch, capsys)
    matrix = fake_world.matrix(tp=[1], graph=["off", "on"]).name
    ablated = call("ablate", matrix, "--fix", "refresh", "--run-dir", "out", "--format", "markdown")
    assert ablated.code == 0, ablated.err
    assert ablated.out.startswith("## graphcheck: 1/1 fixes proven necessary; ")
    assert re.search(r"^tp1-graph_on\.r1  PASS  3/3  \d+\.\d s  \[5/5 done\]$", ablated.err, re.MULTILINE)
    assert " s left]\n" in ablated.err
    assert ablated.err.splitlines()[-1] == "exit 0: pass"
    again = call("report", "out", "--format", "markdown")
    assert (again.code, again.out) == (0, ablated.out)
    matrix_run = call("run", "matrix", matrix, "--disable-fix", "refresh", "--format", "markdown")
    assert matrix_run.code == 1
    assert matrix_run.out.startswith("## graphcheck: 1/2 cells, 3/6 token-exact")
    assert "tp1-graph_on.no-refresh  TOKENS" in matrix_run.err
    assert str(Path.cwd()) not in ablated.out + matrix_run.out
    plain = call("report", "out")
    assert plain.out.splitlines()[-1].startswith("exit 0: pass; next: paste the evidence")
    assert plain.err == ""
    assert call("report", "out", "--format", "pdf").code == 2


def test_a_report_needs_neither_torch_nor_transformers(fake_world: FakeWorld) -> None:
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]))
    program = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import graphcheck.__main__ as entry
sys.argv = ["graphcheck", "report", {str(run.path)!r}, "--format", "markdown"]
entry.main()
"""
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("## graphcheck")) == (0, True), done.stderr
