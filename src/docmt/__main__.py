"""`python -m docmt` is the command `docmt`."""

import sys

from docmt.cli.app import main

sys.exit(main())
