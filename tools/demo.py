"""The demo: a local cluster, the chart, and trees that wait, are placed and are preempted, live. Run by `make demo`.

Whatever it does is a command that it shows first, so that a newcomer can do the same by hand afterwards. The cluster is
left running, with the chart's processes; a second run begins with a new one. `story` has the steps.
"""

import errno
import os
import sys
from pathlib import Path

from cpg_lab.errors import LabError
from story.screen import Screen
from story.stage import Stage
from story.steps import tell

INTERRUPTED = 130


def main() -> int:
    """Tell the story; return the exit code."""
    try:
        screen = Screen(sys.stdout)
        tell(Stage.start(screen))
    except LabError as problem:
        print(f"\ndemo: {problem}", *getattr(problem, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.write("demo: nobody reads any more; the cluster, if it runs, is stopped by: make lab-down\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would flush into the pipe
        return 1
    except OSError as problem:
        hint = "; free some disk, it needs about 10 GB the first time" if problem.errno == errno.ENOSPC else ""
        print(f"\ndemo: {problem.strerror}: {problem.filename or ''}{hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; the cluster, if it runs, is stopped by: make lab-down", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    if not Path("charts/kube-cpg").is_dir():
        sys.exit("demo: run it in the root of the repository: make demo")
    sys.exit(main())
