"""Token ids to batches: prepared stores, instances, batches."""

from docmt.data.batches import Batch, BatchPlan, Words, collate, read_source
from docmt.data.instances import Instances, cut, instance_lengths
from docmt.data.prepare import PrepareConfig, prepare
from docmt.data.statistics import CorpusStatistics, SplitStatistics, format_statistics
from docmt.data.store import ParallelStore, PreparedStore, StoreWriter

__all__ = [
    "Batch",
    "BatchPlan",
    "CorpusStatistics",
    "Instances",
    "ParallelStore",
    "PrepareConfig",
    "PreparedStore",
    "SplitStatistics",
    "StoreWriter",
    "Words",
    "collate",
    "cut",
    "format_statistics",
    "instance_lengths",
    "prepare",
    "read_source",
]
