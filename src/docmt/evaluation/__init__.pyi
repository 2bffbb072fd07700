from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .config import PROTOCOLS as PROTOCOLS
from .config import MetricConfig as MetricConfig
from .contrastive import ContrastiveResult as ContrastiveResult
from .contrastive import SuiteConfig as SuiteConfig
from .contrastive import evaluate_items as evaluate_items
from .external import ExternalConfig as ExternalConfig
from .external import ExternalScore as ExternalScore
from .external import score_externally as score_externally
from .generative import evaluate_translations as evaluate_translations
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
from .other_context import OtherContext as OtherContext
from .other_context import other_context as other_context
from .positions import PositionScores as PositionScores
from .positions import scores_by_position as scores_by_position
from .scores import MetricScore as MetricScore
from .significance import SignificanceConfig as SignificanceConfig
from .suite_context import SuiteContext as SuiteContext
from .suite_context import suite_context as suite_context
from .suites import Suite as Suite
from .suites import read_items as read_items
from .suites import read_suite as read_suite
from .usage import ContextGain as ContextGain
from .usage import SentenceGain as SentenceGain
from .usage import UsageConfig as UsageConfig
from .usage import context_gain as context_gain
from .usage import sentence_gains as sentence_gains
