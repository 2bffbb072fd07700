"""Settings for the whole suite."""

import torch

# The tensors of tests are small: a second thread costs more than it brings, and starves other processes.
torch.set_num_threads(1)
