"""Processes for tests that kill them, each forked from one that has loaded docmt: that takes longer than the rest."""

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["docmt.serve.application", "docmt.serve.document_jobs"])


def start_process(target, *arguments):
    """Start a function of a module in a process of its own."""
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process
