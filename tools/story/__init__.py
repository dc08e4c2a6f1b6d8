"""The steps of `make demo`: install the chart, a tree waits, room appears, it is placed, it is preempted."""
