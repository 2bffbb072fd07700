"""What `import docmt` offers."""

import subprocess
import sys

import docmt


def test_dir_lists_the_public_names_and_no_others():
    assert dir(docmt) == sorted(docmt.__all__)
    assert all(hasattr(docmt, name) for name in dir(docmt))


def test_looking_does_not_load_torch():
    script = "import sys, docmt; dir(docmt); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
