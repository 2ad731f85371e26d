"""Owns goldens made by hand, for tests that judge."""

from collections.abc import Mapping, Sequence

from graphcheck.schema.golden import Golden, GoldenHeader, GoldenPrompt, GoldenStep


def golden_of(answers: Mapping[str, Sequence[int]]) -> Golden:
    """A golden of these answers (prompt id -> output ids), each id one logit above token 0."""
    header = GoldenHeader(
        model_name="m",
        model={},
        suite="s",
        suite_sha="",
        dtype="float32",
        num_prompts=len(answers),
        reference="",
        versions={},
        body_sha="",
        made_on="",
        command="",
    )
    prompts = tuple(
        GoldenPrompt(
            id=prompt,
            prompt_ids=(1,),
            ids=tuple(ids),
            text="",
            finish="length",
            steps=tuple(GoldenStep(top=((token, 2.0), (0, 1.0))) for token in ids),
        )
        for prompt, ids in answers.items()
    )
    return Golden(header=header, prompts=prompts)
