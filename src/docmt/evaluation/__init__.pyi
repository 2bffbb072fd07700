from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .config import PROTOCOLS as PROTOCOLS
from .config import MetricConfig as MetricConfig
from .contrastive import ContrastiveResult as ContrastiveResult
from .contrastive import evaluate_items as evaluate_items
from .contrastive import read_items as read_items
from .external import ExternalConfig as ExternalConfig
from .external import ExternalScore as ExternalScore
from .external import score_externally as score_externally
from .metrics import (
    Evaluation as Evaluation,
)
from .metrics import (
    document_bleu as document_bleu,
)
from .metrics import (
    evaluate_documents as evaluate_documents,
)
from .metrics import (
    evaluate_files as evaluate_files,
)
from .metrics import (
    in_documents as in_documents,
)
from .metrics import (
    in_units as in_units,
)
from .scores import MetricScore as MetricScore
from .significance import SignificanceConfig as SignificanceConfig
