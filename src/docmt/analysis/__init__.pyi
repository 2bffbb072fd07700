from .document_figure import (
    draw_document as draw_document,
)
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
from .looks import (
    GateLook as GateLook,
)
from .looks import (
    Look as Look,
)
from .looks import (
    watching as watching,
)
from .report import (
    Report as Report,
)
from .report import (
    look_at_corpus as look_at_corpus,
)
from .report import (
    look_at_document as look_at_document,
)
from .sentences import (
    DocumentLooks as DocumentLooks,
)
