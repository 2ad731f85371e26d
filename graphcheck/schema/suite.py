"""Owns a suite as files describe it and as a target receives it: text and a stop rule, then ids and explicit stops."""

from pydantic import Field, model_validator

from graphcheck.schema.base import Record


class Prompt(Record):
    """One prompt of a suite file: `text` (encoded by the model's tokenizer) or `ids`, never both."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    text: str | None = None
    ids: tuple[int, ...] | None = None
    arrival: int = Field(default=0, ge=0, description="engine step number at which the prompt arrives")
    max_new_tokens: int = Field(gt=0)

    @model_validator(mode="after")
    def _one_source(self) -> "Prompt":
        if (self.text is None) == (self.ids is None):
            raise ValueError("give exactly one of `text` and `ids`")
        if not (self.text or self.ids):
            raise ValueError("the prompt is empty")
        return self


class StopRule(Record):
    """Stop ids drawn by seed from the ids that are not in a prompt's golden.

    A right engine never meets one of them, so the golden is made without; a wrong token stops the sequence
    on that rank with the given chance, which makes ranks that disagree also part in their schedules.
    """

    fraction: float = Field(ge=0.0, lt=1.0, description="share of the vocabulary")
    seed: int


class Suite(Record):
    """Prompts plus how they arrive and how many tokens each asks for."""

    format: int = Field(default=1, ge=1, le=1)
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str = ""
    stop: StopRule | None = None
    passes: int = Field(default=1, ge=1, description="how often the whole suite runs in one process")
    prompts: tuple[Prompt, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _unique_ids(self) -> "Suite":
        seen: set[str] = set()
        for prompt in self.prompts:
            if prompt.id in seen:
                raise ValueError(f"prompt id {prompt.id!r} is given twice")
            seen.add(prompt.id)
        return self


class Request(Record):
    """One prompt as a target receives it: token ids in, an explicit list of stop ids, no text.

    `stop_ids` holds EOS and the drawn ids together; it is empty under `--ignore-eos`.
    A sequence ends after a token of `stop_ids` (which is part of its output) or at `max_new_tokens`.
    `forced_ids` are the golden's tokens, given in a forced pass.
    """

    id: str
    prompt_ids: tuple[int, ...] = Field(min_length=1)
    arrival: int = Field(default=0, ge=0)
    max_new_tokens: int = Field(gt=0)
    stop_ids: tuple[int, ...] = ()
    forced_ids: tuple[int, ...] | None = None


class Workload(Record):
    """A suite resolved for one model and golden: what a target is asked to run, in order of submission."""

    suite: str
    passes: int = Field(default=1, ge=1)
    requests: tuple[Request, ...] = Field(min_length=1)
