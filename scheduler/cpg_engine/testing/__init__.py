"""Building blocks for tests of the engine, of the scheduler, and of programs that embed either."""
