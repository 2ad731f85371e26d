"""Owns the record of what each fix's absence looks like: an ablation, boiled down to verdicts and first differences."""

from pydantic import Field

from graphcheck.schema.base import Record
from graphcheck.schema.verdicts import Verdict

SIGNATURES_FORMAT = 1


class CellSignature(Record):
    """What a cell came out as: its verdict, and prompt -> `OUTCOME@STEP` of its first difference, `exact` without."""

    verdict: Verdict
    prompts: dict[str, str]


class Signatures(Record):
    """Fix -> cell -> what it looks like without that fix; cells that stayed green are left out.

    `goldens` are those that it was judged by: for other prompts or another model it says nothing.
    """

    format: int = Field(default=SIGNATURES_FORMAT, ge=SIGNATURES_FORMAT, le=SIGNATURES_FORMAT)
    matrix: str
    target: str
    goldens: dict[str, str]
    cells: tuple[str, ...]
    fixes: dict[str, dict[str, CellSignature]]
    environment: dict[str, str]
    made: str
    command: str
