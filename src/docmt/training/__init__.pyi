from .config import (
    AdapterConfig as AdapterConfig,
)
from .config import (
    BatchConfig as BatchConfig,
)
from .config import (
    CheckpointConfig as CheckpointConfig,
)
from .config import (
    ObjectiveConfig as ObjectiveConfig,
)
from .config import (
    OptimizerConfig as OptimizerConfig,
)
from .config import (
    StopConfig as StopConfig,
)
from .config import (
    TrainConfig as TrainConfig,
)
from .config import (
    ValidationConfig as ValidationConfig,
)
from .distributed import LostProcessError as LostProcessError
from .loop import TrainingResult as TrainingResult
from .loop import train as train
from .objective import smoothed_cross_entropy as smoothed_cross_entropy
