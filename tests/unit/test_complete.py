"""Shell completion: commands, options, and the names that there are."""

import pytest

from tests.in_process import make_call


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("graphcheck run matrix de", {"default"}),
        ("graphcheck ablate sh", {"shapes"}),
        ("graphcheck run matrix --disable-fix allr", {"allreduce-sync"}),
        ("graphcheck ablate --fix pad", {"pad-clear"}),
        ("graphcheck run matrix --model pro", {"probe"}),
        ("graphcheck run matrix --format ", {"console", "markdown", "html", "junit", "json"}),
        ("graphcheck list ", {"matrices", "suites", "models", "fixes", "targets", "settings"}),
        ("graphcheck run matrix --fail", {"--fail-fast"}),
    ],
)
def test_what_was_begun_is_completed(
    typed: str, offered: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_GRAPHCHECK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    ended = make_call(monkeypatch, capsys)()
    assert (ended.code, set(ended.out.split())) == (0, offered)


def test_a_shell_is_told_how_to_complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_GRAPHCHECK_COMPLETE", "source_bash")
    ended = make_call(monkeypatch, capsys)()
    assert ended.code == 0
    assert "complete -o default -F _graphcheck_completion graphcheck" in ended.out
