from .corpus_files import (
    ParallelDocument as ParallelDocument,
)
from .corpus_files import (
    SkipReport as SkipReport,
)
from .corpus_files import (
    read_documents as read_documents,
)
from .corpus_files import (
    read_parallel as read_parallel,
)
from .corpus_files import (
    write_jsonl as write_jsonl,
)
from .corpus_files import (
    write_parallel as write_parallel,
)
from .document import Document as Document
from .document import InputFile as InputFile
from .document import read_input as read_input
from .segmentation import sentence_spans as sentence_spans
from .segmentation import unwrap_lines as unwrap_lines
