"""The fall-back policy on the real engine: undeclared it is vacuous, declared it is green but never graph-on."""

from pathlib import Path

import pytest

from graphcheck.schema.verdicts import Verdict
from tests.cli.conftest import Program
from tests.tiny_model import make_tiny_llama, words

SUITE = f"""
name = "short"
[[prompts]]
id = "one"
text = "{words(3, 14, 15, 92)}"
max_new_tokens = 3
"""


@pytest.mark.usefixtures("inline_reference")
@pytest.mark.parametrize("declared", [False, True])
def test_unsupported_kv_dtype_falls_back_and_must_be_declared(program: Program, tmp_path: Path, declared: bool) -> None:
    make_tiny_llama(tmp_path / "tiny")
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "short.toml").write_text(SUITE)
    policy = '[policy]\nexpect_fallback = ["kv_dtype"]\n' if declared else ""
    (tmp_path / "m.toml").write_text(
        'models = ["tiny"]\nsuites = ["short"]\n[axes]\ngraph = ["on"]\n[settings]\nkv_dtype = "bfloat16"\n' + policy
    )
    regen = program("golden", "regen", "m.toml")
    assert regen.code == 0, regen.output
    done = program("run", "matrix", "m.toml")
    (attempt,) = done.attempts().values()
    assert attempt.facts.evidence[0].fallbacks == {"kv_dtype": 2}
    if declared:
        assert (done.code, attempt.verdict, attempt.declared_eager) == (0, Verdict.PASS, True), done.output
        assert "PASS (eager by declaration)" in done.output
        assert "1 eager by declaration" in done.last_lines[0]
        assert "no CUDA graph ran" in done.last_lines[0]
        assert attempt.backend is not None
        assert attempt.backend.graph is None
        required = program("run", "matrix", "m.toml", "--require-backend", "tape")
        assert required.code == 5, "no graph was captured, let alone replayed"
    else:
        assert (done.code, attempt.verdict) == (5, Verdict.VACUOUS), done.output
        assert "fell back to eager: kv_dtype" in attempt.reason
