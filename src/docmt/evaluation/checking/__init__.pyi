from .check import check_documents as check_documents
from .check import check_files as check_files
from .config import KINDS as KINDS
from .config import CheckConfig as CheckConfig
from .finding import Finding as Finding
from .finding import Place as Place
from .finding import Report as Report
from .page import page as page
