"""The command: ``python -m cpg_simulation --seeds 1-500``."""

import os
import sys

from cpg_simulation.virtual import install

if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "cpg_simulation", *sys.argv[1:]])  # noqa: S606 - ourselves
    install.install()
    from cpg_simulation.command import main

    sys.exit(main())
