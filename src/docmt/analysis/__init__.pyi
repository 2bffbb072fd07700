from .entropy import (
    KINDS as KINDS,
)
from .entropy import (
    AttentionReport as AttentionReport,
)
from .entropy import (
    EntropyMeter as EntropyMeter,
)
from .entropy import (
    attention_entropy as attention_entropy,
)
from .entropy import (
    look_at_corpus as look_at_corpus,
)
from .entropy import (
    measuring_entropy as measuring_entropy,
)
from .facts import (
    Curve as Curve,
)
from .facts import (
    Point as Point,
)
from .facts import (
    draw_curves as draw_curves,
)
from .facts import (
    draw_points as draw_points,
)
from .facts import (
    read_curves as read_curves,
)
from .looks import (
    GateLook as GateLook,
)
from .looks import (
    Look as Look,
)
from .looks import (
    watching as watching,
)
