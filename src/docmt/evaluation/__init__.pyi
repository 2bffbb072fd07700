from .config import PROTOCOLS as PROTOCOLS
from .config import MetricConfig as MetricConfig
from .contrastive import ContrastiveResult as ContrastiveResult
from .contrastive import SuiteConfig as SuiteConfig
from .contrastive import evaluate_items as evaluate_items
from .generative import evaluate_translations as evaluate_translations
from .metrics import (
    Evaluation as Evaluation,
)
from .metrics import (
    MetricScore as MetricScore,
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
from .suites import Suite as Suite
from .suites import read_items as read_items
from .suites import read_suite as read_suite
