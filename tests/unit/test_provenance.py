"""Where the code comes from: commits and what is not committed, what it must descend from, where it may change."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphcheck.harness.records import provenance as provenance_module
from graphcheck.harness.records.provenance import provenance, read_tree
from graphcheck.report.provenance import print_provenance
from graphcheck.report.terminal import Terminal
from graphcheck.schema.errors import ProvenanceError
from graphcheck.schema.provenance import Tree
from tests.fake_world import FakeWorld
from tests.in_process import make_call


class Repository:
    """A small one, and the current folder."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.git("init", "--quiet", "--initial-branch", "main")

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *who, *arguments], cwd=self.top, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text, encoding="utf-8")

    def commit(self, **files: str) -> str:
        """Writes `name.txt` for each of `files`, and commits everything."""
        for name, text in files.items():
            self.write(f"{name}.txt", text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "m")
        return self.git("rev-parse", "HEAD")

    @property
    def tree(self) -> Tree:
        return read_tree(self.top)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.chdir(tmp_path)
    return Repository(tmp_path)


@pytest.fixture
def no_cache() -> Iterator[None]:
    provenance_module._source.cache_clear()
    yield
    provenance_module._source.cache_clear()


def test_what_differs_from_the_commit_is_named_and_hashed_whether_tracked_or_not(repository: Repository) -> None:
    first = repository.commit(a="1", b="2", c="3")
    clean = repository.tree
    assert (clean.commit, clean.changed, clean.changed_sha) == (first, (), None)
    repository.write("a.txt", "changed")
    repository.write("new folder/ü.txt", "untracked")
    (repository.top / "b.txt").unlink()
    dirty = repository.tree
    assert dirty.changed == ("a.txt", "b.txt", "new folder/ü.txt")
    assert dirty == repository.tree, "the same state has the same hash"
    repository.git("add", "--all")
    assert dirty == repository.tree, "staged or not is all the same"
    hashes = {dirty.changed_sha}
    for name, text in (("a.txt", "changed again"), ("new folder/ü.txt", "too"), ("b.txt", "back")):
        repository.write(name, text)
        hashes.add(repository.tree.changed_sha)
    assert len(hashes) == 4


def test_ignored_files_links_folders_and_odd_names_are_no_trouble(repository: Repository) -> None:
    repository.write(".gitignore", "*.log\n")
    repository.commit(a="1")
    repository.write("x.log", "ignored")
    assert repository.tree.changed == ()
    (repository.top / "link").symlink_to("nowhere")
    (repository.top / "two\nlines").touch()
    Path(os.fsdecode(os.fsencode(repository.top) + b"/\xff")).touch()
    nested = repository.top / "nested"
    nested.mkdir()
    Repository(nested)
    assert set(repository.tree.changed) == {"link", "two\nlines", "\\xff", "nested/"}


def test_a_large_file_counts_by_size_and_time(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance_module, "LARGE", 3)
    repository.commit(a="1")
    repository.write("weights", "123456")
    before = repository.tree
    os.utime(repository.top / "weights", ns=(0, 1))
    assert repository.tree.changed_sha != before.changed_sha


def test_a_repository_without_a_commit_says_so(repository: Repository) -> None:
    repository.write("a", "1")
    tree = repository.tree
    assert (tree.commit, tree.changed, tree.note) == (None, ("a",), "no commit yet")
    with pytest.raises(ProvenanceError, match="no commit yet; run in a repository with a commit"):
        provenance(base="HEAD")


def test_a_git_hook_s_own_repository_is_not_taken_for_this_one(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repository.commit(a="1")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert repository.tree.commit == first


@pytest.mark.usefixtures("no_cache")
def test_without_git_there_is_a_note_in_place_of_a_commit(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(a="1")
    monkeypatch.setenv("PATH", str(repository.top))
    found = provenance()
    assert found.here is not None
    assert (found.here.commit, found.here.note) == (None, "git cannot be started (No such file or directory)")
    assert found.source.commit is None
    assert found.source_sha is not None
    with pytest.raises(ProvenanceError, match=r"git cannot be started .*; run in a repository with a commit"):
        provenance(base="main")


@pytest.mark.usefixtures("no_cache")
def test_an_installed_copy_is_not_put_down_to_the_repository_that_it_lies_in(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write(".gitignore", "/venv/\n")
    repository.commit(a="1")
    package = repository.top / "venv" / "graphcheck"
    repository.write("venv/graphcheck/__init__.py", "")
    monkeypatch.setattr(provenance_module, "PACKAGE", package)
    found = provenance()
    assert (found.source.folder, found.source.commit) == (str(package), None)
    assert found.source.note == "an installed copy that git does not track"
    assert found.here is not None
    assert found.here.commit is not None
    other = found.source_sha
    repository.write("venv/graphcheck/__init__.py", "changed")
    provenance_module._source.cache_clear()
    assert provenance().source_sha != other


@pytest.mark.usefixtures("no_cache")
def test_where_there_is_no_repository_at_all_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance_module, "PACKAGE", tmp_path)
    found = provenance()
    assert (found.source.note, found.here) == ("in no git repository", None)
    with pytest.raises(ProvenanceError, match="in no git repository"):
        provenance(allow=("**",))


def test_the_base_must_be_an_ancestor(repository: Repository) -> None:
    base = repository.commit(a="1")
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit(a="2")
    repository.git("checkout", "--quiet", "main")
    repository.commit(b="1")
    found = provenance(base=base[:10]).base
    assert found is not None
    assert (found.rev, found.commit, found.changed) == (base[:10], base, ("b.txt",))
    with pytest.raises(ProvenanceError, match=r"^--base side \([0-9a-f]{12}\): no ancestor of [0-9a-f]{12} in .*; reb"):
        provenance(base="side")
    for unknown in ("nonsense", "--all", ""):
        with pytest.raises(ProvenanceError, match=rf"^--base {unknown}: no commit of .*; name a commit"):
            provenance(base=unknown)


@pytest.mark.parametrize(
    ("allow", "outside"),
    [
        (("a.txt", "src/**"), []),
        (("*.txt", "src"), []),
        (("a.txt", "src/*"), ["src/deep/c.py"]),
        (("src/**",), ["a.txt"]),
        (("a.txt", "src/deep/**"), ["src/new.py"]),
        (("none",), ["a.txt", "src/deep/c.py", "src/new.py"]),
    ],
)
def test_changed_files_must_all_be_within_the_globs(
    repository: Repository, allow: tuple[str, ...], outside: list[str]
) -> None:
    base = repository.commit(a="1", b="1")
    repository.write("src/deep/c.py", "committed since")
    repository.commit()
    repository.write("a.txt", "not committed")
    repository.write("src/new.py", "not even tracked")
    if not outside:
        found = provenance(base, allow).base
        assert found is not None
        assert found.changed == ("a.txt", "src/deep/c.py", "src/new.py")
        return
    with pytest.raises(ProvenanceError) as raised:
        provenance(base, allow)
    assert raised.value.value == ", ".join(outside)
    assert raised.value.rule == f"changed since {base[:12]}, outside {' '.join(allow)}"


def test_without_a_base_the_globs_are_for_what_is_not_committed(repository: Repository) -> None:
    repository.commit(a="1")
    repository.commit(b="1")
    repository.write("b.txt", "2")
    assert provenance(allow=("b.*",)).base is not None
    with pytest.raises(ProvenanceError, match=r"^b\.txt: changed since"):
        provenance(allow=("a.*",))
    with pytest.raises(ProvenanceError, match=r"^--allow '': an empty glob"):
        provenance(allow=("b.*", ""))


def test_a_damaged_repository_is_an_error_in_one_line(repository: Repository) -> None:
    base = repository.commit(a="1")
    repository.commit(b="1")
    tree = repository.git("rev-parse", f"{base}^{{tree}}")
    (repository.top / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(ProvenanceError, match=r"^git diff in .*: .*; repair the repository"):
        provenance(base)


def test_the_command_prints_one_line_a_fact(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = repository.commit(a="1")
    for number in range(7):
        repository.write(f"n{number}", "")
    call = make_call(monkeypatch, capsys)
    shown = call("provenance", "--base", "main", "--allow", "n*")
    assert shown.code == 0, shown
    here = shown.out[shown.out.index("here: ") :].splitlines()
    assert here[0].startswith(f"here: {repository.top}: commit {first[:12]}, 7 uncommitted files, sha256 ")
    assert here[1:-1] == [*(f"  n{number}" for number in range(5)), "  and 2 more"]
    assert here[-1] == f"asked for: descends from main ({first[:12]}); 7 files changed since, all within n*"
    call("provenance", "--allow", "a.txt").assert_one_line(2, "n0, n1, n2, n3, n4 and 2 more: changed since")
    call("provenance", "--base", "nonsense").assert_one_line(2, "--base nonsense: no commit of")


def test_a_run_records_it_and_does_not_start_where_it_is_not_as_asked(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(fake_world.path)
    first = repository.commit()
    run, _ = fake_world.run(fake_world.matrix(graph=["on"]), base="main", allow=("m.toml", "runs/**"))
    recorded = run.info.provenance
    assert recorded.here is not None
    assert (recorded.here.commit, recorded.here.changed) == (first, ("m.toml",))
    assert recorded.base is not None
    assert (recorded.base.rev, recorded.base.allow) == ("main", ("m.toml", "runs/**"))
    print_provenance(recorded, Terminal())
    for command in (("run", "matrix"), ("ablate",)):
        call = make_call(monkeypatch, capsys)
        for more in ((), ("--list",)):
            call(*command, "m.toml", "--allow", "runs", *more).assert_one_line(2, "m.toml: changed since")
    assert len(list(Path("runs").iterdir())) == 1
