"""The one exception a user is meant to see."""


class DocmtError(Exception):
    """Something the user can mend: one sentence saying what is wrong, where, and what to do next.

    The command line prints the sentence without a traceback and exits with status 2.
    """
