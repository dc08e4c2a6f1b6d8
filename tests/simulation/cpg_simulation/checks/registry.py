"""The list of all rules."""

from collections.abc import Sequence

from cpg_simulation.checks.binds import BOUND_ONCE, ONLY_OWN_PODS, ROOM, TAKES_THE_POD
from cpg_simulation.checks.budgets import BUDGETS_HOLD
from cpg_simulation.checks.devices import CLAIMS_READY, DEVICES_GIVEN_ONCE, NO_DEVICE_KEPT
from cpg_simulation.checks.evictions import MARKED_FIRST, NEVER_PREEMPTS, ONLY_LOWER_PRIORITY, UNITS_GO_WHOLE
from cpg_simulation.checks.fence import ONLY_THE_LEADER_WRITES
from cpg_simulation.checks.gangs import ALL_OR_NOTHING, ONE_DOMAIN
from cpg_simulation.checks.identity import KNOWN_OBJECTS
from cpg_simulation.checks.relations import AFFINITY, ANTI_AFFINITY, FREE_PORTS, SPREADING
from cpg_simulation.checks.settled_groups import (
    COUNTS,
    DISRUPTED,
    FINALIZERS,
    HEALTH,
    LEASES_HELD,
    PLACED,
    WORKLOADS_INSTANTIATED,
)
from cpg_simulation.checks.settled_pods import (
    NO_STALE_NOMINATION,
    NO_STALE_VICTIM,
    PENDING_PODS_SAY_WHY,
    PREEMPTORS_EVICT,
    WHAT_FITS_IS_BOUND,
)
from cpg_simulation.checks.statuses import FIELD_MANAGERS, FINAL_CONDITIONS, GENERATIONS, OWN_FIELDS, PROTECTION
from cpg_simulation.checks.takeovers import LEADERS_CATCH_UP, STOPPED_LEADERS_CATCH_UP
from cpg_simulation.checks.values import Rule

WRITE_RULES: Sequence[Rule] = (
    BOUND_ONCE,
    ONLY_OWN_PODS,
    KNOWN_OBJECTS,
    ROOM,
    TAKES_THE_POD,
    FREE_PORTS,
    ANTI_AFFINITY,
    AFFINITY,
    SPREADING,
    DEVICES_GIVEN_ONCE,
    CLAIMS_READY,
    ONE_DOMAIN,
    ALL_OR_NOTHING,
    ONLY_THE_LEADER_WRITES,
    MARKED_FIRST,
    ONLY_LOWER_PRIORITY,
    NEVER_PREEMPTS,
    UNITS_GO_WHOLE,
    BUDGETS_HOLD,
    OWN_FIELDS,
    FIELD_MANAGERS,
    FINAL_CONDITIONS,
    GENERATIONS,
    PROTECTION,
)
"""What has to hold after every write."""

SENT_RULES: Sequence[Rule] = (LEADERS_CATCH_UP, STOPPED_LEADERS_CATCH_UP)
"""What has to hold when a bind is sent."""

SETTLED_RULES: Sequence[Rule] = (
    WHAT_FITS_IS_BOUND,
    PREEMPTORS_EVICT,
    PENDING_PODS_SAY_WHY,
    NO_STALE_NOMINATION,
    NO_STALE_VICTIM,
    NO_DEVICE_KEPT,
    COUNTS,
    HEALTH,
    PLACED,
    DISRUPTED,
    FINALIZERS,
    WORKLOADS_INSTANTIATED,
    LEASES_HELD,
)
"""What has to hold at the end of a night."""
