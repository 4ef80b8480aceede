"""`lazyt.data`: datasets, samplers and the DataLoader. As `torch.utils.data`."""

from lazyt.data.collate import default_collate, default_convert
from lazyt.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from lazyt.data.fetch import get_worker_info
from lazyt.data.loader import DataLoader
from lazyt.data.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from lazyt.errors import WorkerError
from lazyt.tracing import tracebacks as _tracebacks

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerError",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]

_tracebacks.guard_functions(globals(), ("default_collate", "default_convert", "get_worker_info", "random_split"))
_tracebacks.guard_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
