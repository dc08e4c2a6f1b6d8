"""The buckets of histograms."""

SECONDS = tuple(0.001 * 2**power for power in range(15))
"""From a millisecond to 16 s, as in kube-scheduler."""
LONG_SECONDS = tuple(0.01 * 4**power for power in range(12))
"""From ten milliseconds to half a day."""
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
