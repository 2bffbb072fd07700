"""A child process that does what a hostile file might make the real one do; the format says what."""

import os
import sys
from pathlib import Path

from docmt.serve.file_worker import FileTask, limit_resources

task = FileTask.from_json(sys.stdin.read())
limit_resources(task)
match task.facts.format:
    case "loop":
        while True:
            pass
    case "sleep":
        import time

        time.sleep(3600)
    case "die":
        os.abort()
    case "flood":
        Path(task.answer).write_text("[" + "1," * 10_000_000)
    case "garbage":
        Path(task.answer).write_bytes(b"\x00\xff no JSON")
    case "no_result":
        Path(task.answer).write_text("{}")
    case "bad_result":
        Path(task.output).write_text('{"documents": [{"sentences": [1], "gaps": [], "id": 3}]}')
        Path(task.answer).write_text("{}")
    case "nested":
        Path(task.output).write_text("[" * 100_000)
        Path(task.answer).write_text("{}")
    case "silent":
        pass
