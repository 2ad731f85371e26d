"""The waits that the supervisor cuts stacks at are functions of the engine, by the names that its stacks show."""

import ast
from pathlib import Path

from graphcheck.engine import device
from graphcheck.harness.running.stacks import DECLARED_WAITS

ENGINE = Path(device.__file__).parent


def test_every_declared_wait_is_a_function_of_the_engine() -> None:
    defined = {
        node.name
        for path in ENGINE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert set(DECLARED_WAITS) <= defined
