"""The one core of the tests: random calls of the public functions, beside an oracle: ``cd tests && python -m fuzz``.

layouts.py     the memory layouts, and where the elements of an array lie
memory.py      memory that ends at pages that may not be touched
calls.py       a call as data
contents.py    the elements of arrays
right.py       right calls of every public function, from its signature and the roles in fastgae/_call.py
strategy.py    the one strategy of hypothesis: right calls, and calls with mistakes
accepted.py    which calls must be refused, by the documentation alone
oracle.py      the answers, from the equations alone, one step after the other
invariance.py  calls that must give the same bits as a call, for functions that the oracle does not know
check.py       a call in every way: the same bits as each other and as the oracle, and nothing else written
run.py         so many calls, in several processes
mutants.py     mistakes planted in the package, each of which must be found
"""
