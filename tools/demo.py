"""The demo, run by `make demo`: a local cluster, the chart, and trees that wait, are placed and are preempted.

Every change is a command that is shown first, so that it can be repeated by hand. The cluster and the chart's processes
stay up; a second run starts a new cluster. The steps are in `story`.
"""

import errno
import os
import sys
from pathlib import Path

from cpg_lab.errors import LabError
from story.cluster import DemoCluster
from story.screen import Screen
from story.steps import run_steps

INTERRUPTED = 130


def main() -> int:
    """Run the demo and return the exit code."""
    try:
        screen = Screen(sys.stdout)
        run_steps(DemoCluster.start(screen))
    except LabError as problem:
        print(f"\ndemo: {problem}", *getattr(problem, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.write("demo: the output was closed; to stop the cluster: make lab-down\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout at exit
        return 1
    except OSError as problem:
        hint = "; the first run needs about 10 GB of disk" if problem.errno == errno.ENOSPC else ""
        print(f"\ndemo: {problem.strerror}: {problem.filename or ''}{hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; to stop the cluster: make lab-down", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    if not Path("charts/kube-cpg").is_dir():
        sys.exit("demo: run it in the root of the repository: make demo")
    sys.exit(main())
