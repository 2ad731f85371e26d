"""Owns the engine's error tree; whoever runs the engine maps it to outcomes."""


class EngineError(Exception):
    """Base of everything the engine raises on purpose. Reads `value: rule; what to do`."""


class ConfigError(EngineError):
    """A setting that the engine cannot run with."""


class CheckpointError(EngineError):
    """A checkpoint folder that the engine cannot load."""


class RequestError(EngineError):
    """One request that can never be served; `request_id` names it. The others go on."""

    def __init__(self, request_id: str, message: str) -> None:
        super().__init__(message)
        self.request_id = request_id


class CaptureError(EngineError):
    """A graph could not be captured: names the op, the bucket and what to try."""


class ConsensusError(EngineError):
    """Ranks took different tokens in a step: names the step."""


class ContractError(EngineError):
    """The replay contract was broken: names the buffer and its owner."""
