"""Processes for tests that kill them, each forked from one that has loaded docmt: that takes longer than the rest."""

from forked import CONTEXT, call


def start_process(target, *arguments):
    """Start a function of a module in a process of its own."""
    process = CONTEXT.Process(target=call, args=(target, *arguments))
    process.start()
    return process
