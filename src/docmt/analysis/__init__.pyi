from .entropy import (
    KINDS as KINDS,
)
from .entropy import (
    EntropyMeter as EntropyMeter,
)
from .entropy import (
    attention_entropy as attention_entropy,
)
from .entropy import (
    measuring_entropy as measuring_entropy,
)
from .entropy import (
    query_entropies as query_entropies,
)
from .figures import (
    Curve as Curve,
)
from .figures import (
    Point as Point,
)
from .figures import (
    draw_accuracies as draw_accuracies,
)
from .figures import (
    draw_curves as draw_curves,
)
from .figures import (
    draw_points as draw_points,
)
from .figures import (
    read_curves as read_curves,
)
