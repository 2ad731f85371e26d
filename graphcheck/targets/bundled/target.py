"""Owns the bundled target: what the engine can do, in the harness's words, and starting attempts at it."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from graphcheck.engine.config import SETTINGS, EngineConfig, Setting
from graphcheck.engine.errors import ConfigError
from graphcheck.engine.fixes import FIXES, Fix
from graphcheck.engine.graph_support import FALLBACK_REASONS
from graphcheck.engine.site_names import PATTERNS
from graphcheck.schema.base import AxisValue
from graphcheck.schema.capabilities import AxisSpec, Capabilities, FixInfo, Signature
from graphcheck.schema.errors import UsageError
from graphcheck.schema.suite import Workload
from graphcheck.schema.verdicts import Verdict
from graphcheck.targets.base import Launch, Session
from graphcheck.targets.bundled.fork_client import ForkServer
from graphcheck.targets.bundled.job import Job
from graphcheck.targets.bundled.session import BundledSession


class BundledTarget:
    """The engine of this package. Loads no torch in the calling process."""

    def describe(self) -> Capabilities:
        """See Target.describe."""
        return Capabilities(
            target="bundled",
            axes=tuple(_axis(setting) for setting in SETTINGS),
            fixes=tuple(_fix(fix) for fix in FIXES),
            gives_top_logits=True,
            graph_backends=("tape", "cuda"),
            fallbacks=FALLBACK_REASONS,
            gives_forced=True,
            devices={"cuda": "tp"},
            sharing={"share_gpus": "on", "allreduce": "symm"},
            sites=PATTERNS,
        )

    def start(self, launch: Launch, workload: Workload, out_dir: Path) -> Session:
        """See Target.start."""
        job = Job(
            model_dir=launch.model_dir.absolute(),
            settings=launch.settings,
            fixes_off=launch.attempt.fixes_off,
            delays=launch.attempt.delays,
            workload=workload,
        )
        if "_server" in self.__dict__ and not self._server.is_alive:
            # Whatever ended it cost the attempt at hand; the others need not pay for it.
            self.close()
        return BundledSession(self._server, job, out_dir.absolute())

    def check(self, settings: Mapping[str, AxisValue]) -> None:
        """See Target.check."""
        try:
            EngineConfig.from_settings(settings, frozenset())
        except ConfigError as error:
            value, _, rest = str(error).partition(": ")
            rule, _, todo = rest.rpartition("; ")
            raise UsageError(value, rule, todo) from None

    def close(self) -> None:
        """See Target.close."""
        if "_server" in self.__dict__:
            self._server.close()
            del self._server

    @cached_property
    def _server(self) -> ForkServer:
        return ForkServer()


def _axis(setting: Setting) -> AxisSpec:
    return AxisSpec(
        name=setting.name,
        kind="int" if isinstance(setting.default, int) else "str",
        default=setting.default,
        choices=setting.choices,
        minimum=setting.minimum,
        help=setting.help,
    )


def _fix(fix: Fix) -> FixInfo:
    signature = Signature(
        where=dict(fix.where),
        phase=fix.phase,
        shows={backend: tuple(Verdict(name) for name in verdicts) for backend, verdicts in fix.shows.items()},
    )
    return FixInfo(name=fix.name, clause=fix.clause, promise=fix.promise, off_means=fix.off_means, signature=signature)
