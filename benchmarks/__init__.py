"""Speed and memory of attention, training and decoding, as ratios measured within one run."""

import os

# torch's profiler announces each start and stop on standard error; this must be set before torch is loaded.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
