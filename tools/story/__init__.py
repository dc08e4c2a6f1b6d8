"""The story that `make demo` tells: a chart, a tree that waits, room, a place, and a more important tree."""
