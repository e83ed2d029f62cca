"""One thread for each process: there are as many processes as cores, tensors are small, and sums are in one order."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded, which is later
