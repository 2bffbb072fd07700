from .batches import (
    Batch as Batch,
)
from .batches import (
    BatchPlan as BatchPlan,
)
from .batches import (
    collate as collate,
)
from .batches import (
    collate_source as collate_source,
)
from .instances import Instances as Instances
from .instances import cut_instances as cut_instances
from .instances import instance_lengths as instance_lengths
from .preparation import prepare as prepare
from .prepare_config import PrepareConfig as PrepareConfig
from .statistics import (
    CorpusStatistics as CorpusStatistics,
)
from .statistics import (
    SplitStatistics as SplitStatistics,
)
from .statistics import (
    format_statistics as format_statistics,
)
from .store import ParallelStore as ParallelStore
from .store import PreparedStore as PreparedStore
from .store import SentenceTokens as SentenceTokens
from .store import StoreWriter as StoreWriter
