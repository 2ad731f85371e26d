"""Owns what the reference's process does: loads the model with transformers, runs each prompt, reports every step."""

import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessor

from graphcheck.schema.base import Record
from graphcheck.schema.events import ErrorEvent, Event, EvidenceEvent, FinishedEvent, Phase, PhaseEvent, StepEvent
from graphcheck.schema.evidence import Backend, Evidence
from graphcheck.schema.golden import NUM_TOP
from graphcheck.schema.suite import Request, Workload


class Job(Record):
    """What the target wrote into the job file."""

    model_dir: Path
    dtype: str
    arithmetic: str
    attention: str
    workload: Workload


class Reporter:
    """Sends events to the target and keeps count of what they witness."""

    def __init__(self, descriptor: int) -> None:
        self._stream = os.fdopen(descriptor, "w", buffering=1)
        self._started = time.monotonic()
        self._booked = self._started
        self.phase: Phase = "start"
        self.seconds: dict[str, float] = {}
        self.num_steps = 0
        self.num_decode_tokens = 0

    def send(self, event: Event) -> None:
        self._stream.write(event.model_dump_json() + "\n")

    def enter(self, phase: Phase) -> None:
        self._book_time()
        self.phase = phase
        self.send(PhaseEvent(rank=0, phase=phase, seconds=self._booked - self._started))

    def _book_time(self) -> None:
        now = time.monotonic()
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self._booked
        self._booked = now

    def evidence(self) -> None:
        self._book_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
        counted = Evidence(
            backend=Backend(device="cpu"),
            captures=0,
            replays=0,
            replayed_lane_tokens=0,
            eager_lane_tokens=self.num_decode_tokens,
            padded_lanes=0,
            peak_memory_bytes=peak,
            seconds=self.seconds,
        )
        self.send(EvidenceEvent(rank=0, evidence=counted))


class Witness(LogitsProcessor):
    """Reports the logits of each step: as `generate` is about to use them, unchanged, or row by row."""

    def __init__(self, reporter: Reporter, request: Request, run: int) -> None:
        self._reporter, self._request, self._run = reporter, request, run
        self._last = time.monotonic()
        self.ids: list[int] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """`scores` [1, vocab_size] float32."""
        self.report(scores[0])
        return scores

    def report(self, logits: torch.Tensor, forced: int | None = None) -> None:
        """One step with `logits` [vocab_size], after which `forced`, else the argmax, is fed on."""
        token = int(logits.argmax())
        fed = token if forced is None else forced
        finite = bool(logits.isfinite().all())
        now = time.monotonic()
        self._reporter.send(
            StepEvent(
                rank=0,
                step=self._reporter.num_steps,
                run=self._run,
                phase="decode" if self.ids else "prefill",
                requests=(self._request.id,),
                index=(len(self.ids),),
                argmax=(token,),
                ids=(fed,),
                finite=(finite,),
                live=1,
                replayed=False,
                seconds=now - self._last,
                top=(best(logits),) if finite else None,
            )
        )
        self._last = now
        self._reporter.num_steps += 1
        self._reporter.num_decode_tokens += bool(self.ids)
        if not self.ids:
            self._reporter.enter("decode")
        self.ids.append(fed)


def best(logits: torch.Tensor) -> tuple[tuple[int, float], ...]:
    """The NUM_TOP best (id, logit) of `logits` [vocab_size]; of equals the lowest id first, as argmax has it."""
    values, ids = logits.sort(descending=True, stable=True)  # unlike topk, which takes any of more equals than it needs
    return tuple(zip(ids[:NUM_TOP].tolist(), values[:NUM_TOP].tolist(), strict=True))


def load(job: Job) -> Any:
    """The model with weights rounded to `dtype`, then turned into the dtype of the arithmetic.

    Only parameters are turned: what transformers keeps in float32 (norms, rotary angles) stays so.

    Raises:
        ValueError: the checkpoint lacks weights or has them in another shape; transformers would invent them.
    """
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        job.model_dir,
        dtype=torch.float32,
        attn_implementation=job.attention,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    model, info = loaded
    if broken := {kind: info[kind] for kind in ("missing_keys", "mismatched_keys") if info[kind]}:
        raise ValueError(f"the checkpoint does not fill the model: {broken}")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter.to(getattr(torch, job.dtype)).to(getattr(torch, job.arithmetic))
    # A checkpoint's own sampling defaults (penalties, temperature) would be merged into every call.
    model.generation_config = GenerationConfig()
    return model.eval()


def generate(model: Any, request: Request, witness: Witness) -> None:
    """Greedy decoding of one prompt, as a user of transformers would write it.

    Raises:
        RuntimeError: `generate` returned other tokens than the logits that it was seen to use.
    """
    prompt = torch.tensor([request.prompt_ids])
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        generation_config=GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=request.max_new_tokens,
            eos_token_id=list(request.stop_ids) or None,
            pad_token_id=0,
        ),
        logits_processor=[witness],
    )
    ids = output[0, len(request.prompt_ids) :].tolist()
    if ids != witness.ids:
        raise RuntimeError(f"generate returned {ids} but its logits say {witness.ids}")


def force(model: Any, request: Request, witness: Witness) -> None:
    """The forced tokens in one pass without a cache; every position from the prompt's last on is a step."""
    forced = request.forced_ids or ()
    tokens = torch.tensor([[*request.prompt_ids, *forced[:-1]]])
    with torch.inference_mode():
        logits = model(input_ids=tokens, use_cache=False).logits[0, len(request.prompt_ids) - 1 :]
    for row, token in zip(logits, forced, strict=True):
        witness.report(row, token)


def run(job: Job, reporter: Reporter) -> None:
    """Every prompt in order, one at a time; an error in one is reported and the next one runs."""
    reporter.enter("load")
    model = load(job)
    for number in range(job.workload.passes):
        for request in job.workload.requests:
            reporter.enter("prefill")
            witness = Witness(reporter, request, number)
            try:
                (generate if request.forced_ids is None else force)(model, request, witness)
            except Exception as error:
                reporter.send(_error(error, "request", reporter.phase, request.id))
                continue
            reporter.send(
                FinishedEvent(
                    rank=0,
                    request=request.id,
                    run=number,
                    reason="stop" if witness.ids[-1] in request.stop_ids else "length",
                    num_tokens=len(witness.ids),
                )
            )
    reporter.evidence()
    reporter.enter("done")


def _error(error: Exception, kind: Literal["request", "crash"], phase: Phase, request: str | None = None) -> ErrorEvent:
    return ErrorEvent(
        rank=0,
        kind=kind,
        error=type(error).__name__,
        message=str(error),
        phase=phase,
        request=request,
        traceback="".join(traceback.format_exception(error)),
    )


def work(job_file: Path, events: int) -> None:
    """The whole life of the process: runs the job, then stays until a byte or the end of standard input releases it."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    reporter = Reporter(events)
    reporter.enter("start")
    try:
        run(Job.model_validate_json(job_file.read_text()), reporter)
    except Exception as error:
        reporter.send(_error(error, "crash", reporter.phase))
        sys.exit(1)
    os.read(0, 1)
