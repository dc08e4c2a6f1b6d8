"""From preemption plans to evicted victims."""
