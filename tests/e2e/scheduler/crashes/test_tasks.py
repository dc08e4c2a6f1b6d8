"""An exception in any task ends the process with an error in the log, so that it is restarted."""

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e

PROGRAM = """
import sys
import {module} as module
from cpg_scheduler.__main__ import main

def broken(*arguments, **named):
    raise LookupError("broken on purpose")

module.{target}  # fails if the name is unknown
{asynchronous}
module.{target} = broken
sys.exit(main())
"""
ASYNC_BROKEN = """
async def broken(*arguments, **named):
    raise LookupError("broken on purpose")
"""
BROKEN = {
    "loop": ("cpg_scheduler.cycle", "SchedulingLoop.run_pass", False),
    "binder": ("cpg_scheduler.binding.binder", "Binder._work", True),
    "writer": ("cpg_scheduler.status.write_queue", "WriteQueue._work", True),
    "reflector": ("cpg_scheduler.reflectors", "ClusterCache.on_node", False),
    "kinds": ("cpg_scheduler.app", "watch_kinds", True),
    "probes": ("cpg_client.process", "ProbeServer.serve", True),
    "renewal": ("cpg_client.process", "LeaderElector._renew_until_lost", True),
    "start": ("cpg_scheduler.reflectors", "served_flavours", True),
}


async def test_an_exception_in_any_task_ends_the_process(testbed: "Testbed") -> None:
    """The exit code is 1, and one line of the log has the traceback."""
    await testbed.create(*(testbed.pod(name, schedulerName=name) for name in BROKEN))
    replicas = {
        name: testbed.start_replica(
            program=PROGRAM.format(module=module, target=target, asynchronous=ASYNC_BROKEN if is_async else ""),
            schedulerName=name,
            leaderElect=name == "renewal",  # there is one lease, so the other replicas run without it
        )
        for name, (module, target, is_async) in BROKEN.items()
    }
    for name, replica in replicas.items():
        assert await asyncio.to_thread(replica.process.wait, 30), name
        assert replica.process.exit_code == 1, (name, replica.process.tail())
        (line,) = replica.log_lines("process failed")
        assert line["error"] == "LookupError('broken on purpose')", name
        assert "Traceback" in line["exception"], name
