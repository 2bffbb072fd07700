from .contrastive import write_contrastive_figure as write_contrastive_figure
from .experiment import (
    SCALES as SCALES,
)
from .experiment import (
    Axis as Axis,
)
from .experiment import (
    Experiment as Experiment,
)
from .experiment import (
    Variant as Variant,
)
from .experiment import (
    list_experiments as list_experiments,
)
from .experiment import (
    read_experiment as read_experiment,
)
from .plan import Plan as Plan
from .plan import PlannedRun as PlannedRun
from .plan import make_plan as make_plan
from .report import write_figure as write_figure
from .report import write_report as write_report
from .reproduction import reproduce as reproduce
from .runner import state_of as state_of
from .scores import EvaluationConfig as EvaluationConfig
from .scores import Suite as Suite
from .scores import evaluate_run as evaluate_run
from .speed import SpeedTest as SpeedTest
from .speed import measure_speed as measure_speed
from .speed import write_speed_figure as write_speed_figure
