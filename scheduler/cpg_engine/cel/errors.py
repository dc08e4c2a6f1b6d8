"""What can be wrong with an expression, or with its evaluation."""


class CelError(Exception):
    """An expression does not compile, or its evaluation failed; the text says why."""


class NotSupportedError(CelError):
    """The expression uses a part of CEL that is left out here."""


class CostError(CelError):
    """The evaluation takes too many steps. Operators do not absorb this error."""


class EvaluationError(CelError):
    """An error of CEL itself, such as a missing key. ``&&`` and ``||`` absorb it where the other operand decides."""
