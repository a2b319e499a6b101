"""A differential fuzzer of the public functions: ``cd tests && python -m fuzz --help``.

choices.py     where random decisions come from, so that a case can be replayed and made smaller
memory.py      arrays in any memory, which ends at pages that may not be touched
contents.py    what arrays hold, and how they lie
calls.py       a call as data
roles.py       one argument by its role in fastgae/_call.py
draw.py        random calls of every public function, from its signature; finish.py adds outputs, threads and mistakes
oracle.py      the answers, from the equations alone, one step after the other
invariance.py  calls that must give the same bits as a call, for functions that the oracle does not know
check.py       a call on every backend: the same bits as each other and as the oracle, and nothing else written
mutants.py     mistakes planted in the kernels, each of which must be found
"""
