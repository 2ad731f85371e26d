"""The public-content check: each kind of private content planted and gone, ordinary content left as it is."""

import pytest

from graphcheck.report.public import Machine, make_public, this_machine

MACHINE = Machine(
    home="/srv/people/jdoe",
    users=frozenset({"jdoe"}),
    hosts=frozenset({"gpubox-17.lab.example"}),
    values={
        "HOME": "/srv/people/jdoe",
        "SCRATCH": "/mnt/fast/project-x9",
        "HUB_TOKEN": "correcthorse",
        "API_KEY": "k9z1",
        "FIX": "pad-clear",
        "PROJECT": "graphcheck",
        "TORCH": "2.13.0.1",
        "LEVEL": "1",
        "MODE": "fast",
    },
)
ORDINARY = """graphcheck 0.1.0, torch 2.13.0+cpu, python 3.11.7, transformers 5.24.0; 12/12, 72/72
valid cells 6/6; exact 72/72; near ties 0: tp2-graph_on.no-pad-clear, aten::add, c10d::add, std::vector, 12:30:45
sha 8f73754bdddedd08cd79a1769fa57cc596c377a12b44d43eaa16b97203bf0c18, 2030-01-02T03:04:05+00:00, x[::2], fast, 1, $9
models/home/page.md, https://example.org/home/base, collective #22, (fake.py:0), NVIDIA H200, rank1@layers.0=20ms"""


def cleaned(text: str) -> str:
    return make_public(text, MACHINE, keep={"pad-clear", "graphcheck"}).text


@pytest.mark.parametrize(
    ("private", "public"),
    [
        ("--model /srv/people/jdoe/models/x", "--model ~/models/x"),
        ("--model=/home/alice/x", "--model=~/x"),
        ("in /Users/alice.b.", "in ~."),
        ("/data/home/alice/x and file:///root/x", "~/x and file://~/x"),
        ("ran by jdoe, jdoe@box", "ran by <user>, <user>@box"),
        ("on gpubox-17.lab.example: up", "on <host>: up"),
        ("on gpubox-17, on gpubox-17.other.example", "on <host>, on <host>"),
        ("at 10.20.30.40:29500", "at <address>:29500"),
        ("at 127.0.0.1.", "at <address>."),
        ("at [2001:db8::8a2e:370:7334]:80", "at [<address>]:80"),
        ("at fe80::1%eth0, ::1", "at <address>, <address>"),
        ("mac 02:42:ac:11:00:02 and 02-42-AC-11-00-02", "mac <address> and <address>"),
        ("--model /mnt/fast/project-x9/m", "--model $SCRATCH/m"),
        ("token=correcthorse;", "token=$HUB_TOKEN;"),
        ("key k9z1", "key $API_KEY"),
    ],
)
def test_what_is_private_is_taken_out(private: str, public: str) -> None:
    assert cleaned(private) == public
    assert cleaned(f"{ORDINARY}\n{private}\n{ORDINARY}") == f"{ORDINARY}\n{public}\n{ORDINARY}"


def test_ordinary_content_survives() -> None:
    unchanged = make_public(ORDINARY, MACHINE, keep={"pad-clear", "graphcheck"})
    assert (unchanged.text, dict(unchanged.removed)) == (ORDINARY, {})


def test_what_the_run_calls_its_things_is_public_whatever_the_environment_says() -> None:
    assert make_public("without pad-clear", MACHINE).text == "without $FIX"
    assert cleaned("without pad-clear") == "without pad-clear"
    machine = Machine("/", frozenset({"probe"}), frozenset({"tape"}), {})
    assert make_public("probe on tape", machine, keep={"probe", "tape"}).text == "probe on tape"


def test_a_version_of_four_parts_is_an_address_unless_the_run_says_so() -> None:
    assert cleaned("torch 2.13.0.1") == "torch <address>"
    assert make_public("torch 2.13.0.1", MACHINE, keep={"2.13.0.1"}).text == "torch 2.13.0.1"


def test_the_user_of_another_machines_home_path_is_known_by_it() -> None:
    assert cleaned("/home/carol/x was read by carol, not by carolyn") == "~/x was read by <user>, not by carolyn"


def test_what_was_taken_out_is_counted_by_kind() -> None:
    text = "jdoe in /home/alice on gpubox-17 at 10.0.0.1 and 10.0.0.2 with correcthorse"
    assert make_public(text, MACHINE).removed == {
        "user name": 1,
        "home path": 1,
        "host name": 1,
        "address": 2,
        "environment value": 1,
    }


def test_this_machine_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/people/zoe")
    monkeypatch.setenv("LOGNAME", "zoe")
    monkeypatch.setenv("PLANTED_SECRET", "s3cr3t-value")
    monkeypatch.setattr("platform.node", lambda: "planted-host")
    text = "zoe /srv/people/zoe/x planted-host s3cr3t-value"
    assert make_public(text, this_machine()).text == "<user> ~/x <host> $PLANTED_SECRET"
