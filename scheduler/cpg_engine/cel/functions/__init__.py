"""The functions and operators that an expression can call, on plain values."""
