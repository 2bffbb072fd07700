"""Token ids to batches: prepared stores, instances, batches."""

from docmt.data.batches import Batch, BatchPlan, collate
from docmt.data.instances import Instances, instance_lengths, pack_instances, pack_source
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
    "collate",
    "format_statistics",
    "instance_lengths",
    "pack_instances",
    "pack_source",
    "prepare",
]
