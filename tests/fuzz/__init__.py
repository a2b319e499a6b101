"""A differential fuzzer of the public functions: ``cd tests && python -m fuzz --help``.

choices.py   where random decisions come from, so that a case can be replayed and made smaller
memory.py    arrays in any memory, which ends at pages that may not be touched
contents.py  what arrays hold: numbers, flags of any byte, coefficients
calls.py     random calls of ``gae`` and of what is like it; siblings.py: of the other functions
oracle.py    the answers, from the equations alone, one step after the other
check.py     a call on every backend: the same bits as each other and as the oracle, and nothing else written
mutants.py   mistakes planted in the kernels, each of which must be found
"""
