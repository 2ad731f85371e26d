"""Fixtures of the engine's tests: one thread as in a rank, a lone process group, an engine in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from graphcheck.engine.config import EngineConfig
from graphcheck.engine.device import CpuDevice
from graphcheck.engine.engine import Engine
from graphcheck.engine.journal import JournalMemory
from tests.tiny_model import make_tiny_llama


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def single_rank_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama whose heads, FFN and vocabulary all need padding to four shards."""
    return make_tiny_llama(tmp_path_factory.mktemp("tiny"))


EngineMaker = Callable[..., Engine]


@pytest.fixture
def make_engine(tiny: Path) -> EngineMaker:
    """Builds a loaded and captured engine of one rank in this process; keywords are settings."""

    def make(folder: Path = tiny, fixes_off: tuple[str, ...] = (), **settings: int | str) -> Engine:
        memory, _ = JournalMemory.create(1)
        config = EngineConfig.from_settings(settings, frozenset(fixes_off))
        engine = Engine(folder, config, rank=0, device=CpuDevice(), journal=memory.writer(0))
        engine.load()
        engine.capture()
        return engine

    return make
