from .distributed import LostProcessError as LostProcessError
from .loop import TrainingResult as TrainingResult
from .loop import train as train
from .objective import smoothed_cross_entropy as smoothed_cross_entropy
from .train_config import (
    AdapterConfig as AdapterConfig,
)
from .train_config import (
    BatchConfig as BatchConfig,
)
from .train_config import (
    CheckpointConfig as CheckpointConfig,
)
from .train_config import (
    ObjectiveConfig as ObjectiveConfig,
)
from .train_config import (
    OptimizerConfig as OptimizerConfig,
)
from .train_config import (
    StopConfig as StopConfig,
)
from .train_config import (
    TrainConfig as TrainConfig,
)
from .train_config import (
    ValidationConfig as ValidationConfig,
)
