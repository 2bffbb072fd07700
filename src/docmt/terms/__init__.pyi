from .glossary import Glossary as Glossary
from .glossary import SkippedRow as SkippedRow
from .glossary import Term as Term
from .memory import Memory as Memory
